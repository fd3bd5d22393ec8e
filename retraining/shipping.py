"""What a night changed, kept beside the whole version for those that have the version before."""

import logging
import tempfile
from pathlib import Path

from shunter.errors import ShunterError
from shunter.tracking.registry.named import export_increment
from shunter.tracking.reports import log_files
from shunter.tracking.runs import open_run

FOLDER = "increment"


def keep_increment(run_id: str, name: str, version: int, since: int) -> None:
    """Keep a new version as an increment of the one before among a run's artifacts, where that is smaller.

    The registry holds each version whole all the same: a rollback, or the removal of an old version, breaks no chain.
    A night does not fail by this.

    Args:
        run_id: Run that registered the version.
        name: Registered model.
        version: The new version.
        since: The version that it goes on from.
    """
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary, FOLDER)
            done = export_increment(f"{name}/{version}", folder, since=f"{name}/{since}")
            run, described = open_run(run_id), done.described
            changed = described.changed_rows / described.rows if described.rows else 0.0
            ratio = done.size / done.whole
            run.log_metrics({"increment.bytes": done.size, "increment.ratio": ratio, "increment.changed_rows": changed})
            if ratio < 1:
                run.set_tags({"increment.since": described.since})
                for path in sorted(folder.rglob("*")):
                    if path.is_file():
                        log_files(run_id, [path], (Path(FOLDER) / path.relative_to(folder).parent).as_posix())
    except (ShunterError, OSError) as error:
        logging.getLogger(__name__).warning("Version %d is not kept as an increment too: %s", version, error)
