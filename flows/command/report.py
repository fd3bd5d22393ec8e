"""The command `shunter report`: a run as a single page for a browser."""

import re
from pathlib import Path

from shunter.errors import RequestError
from shunter.registry import Entry, Registry

# Functions that return the page of all runs of an application's schedule.
TREND_PAGES = Registry(
    "trend page", {"nightly": Entry(target="shunter.retraining.trend:build_trend")}, group="shunter.trend_pages"
)


def write_report(run: str, out: Path | None = None) -> tuple[str, Path]:
    """Write the report of a run to a file.

    Args:
        run: Id of the run, a unique prefix of the id, the name of the run, or `latest`.
        out: File, or folder of the file; `shunter-report-<id>.html` in the working folder if omitted.

    Returns:
        Id of the run and path of the file.

    Raises:
        RequestError: `run` matches no run or several, or the file cannot be written.
        TrackingError: The store cannot be read.
    """
    from shunter.reporting.page.publish import build_report
    from shunter.tracking.find import find_run

    run_id = find_run(run)
    return run_id, _write(build_report(run_id), f"shunter-report-{run_id[:8]}.html", out)


def write_trend(model: str, out: Path | None = None) -> Path:
    """Write the report page on all nightly retrainings of a registered model to a file, and return its path.

    Raises:
        MissingExtensionError: The folder `retraining/` is absent.
        RequestError: The model was never retrained by `shunter nightly`, or the file cannot be written.
        TrackingError: The store cannot be read.
    """
    page = TREND_PAGES.load("nightly")(model)
    return _write(page, f"shunter-nights-{re.sub(r'[^A-Za-z0-9._-]', '-', model)}.html", out)


def _write(page: str, name: str, out: Path | None) -> Path:
    path = out / name if out is not None and out.is_dir() else out or Path(name)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise RequestError(
            f"The report cannot be written to {path} ({error.strerror}): name another file with --out."
        ) from error
    return path
