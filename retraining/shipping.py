"""Increment from the previous to the new model version of a nightly run, to update copies of the previous version."""

import logging
import tempfile
from pathlib import Path

from shunter.errors import ShunterError
from shunter.tracking.registry.named import INCREMENTS, export_increment
from shunter.tracking.reports import log_files
from shunter.tracking.runs import open_run

FOLDER = "increment"


def store_increment(run_id: str, name: str, version: int, since: int) -> None:
    """Store the increment to a new version in a run's artifacts, if it is smaller than the whole version.

    The registry still stores each version whole, so a rollback or the removal of an old version breaks no chain of
    increments. An error is only logged. Without the extension for increments nothing is stored.

    Args:
        run_id: Run that registered the version.
        name: Registered model.
        version: New version.
        since: Base version of the increment.
    """
    if not INCREMENTS.names:
        return
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
        logging.getLogger(__name__).warning("The increment to version %d is not stored: %s", version, error)
