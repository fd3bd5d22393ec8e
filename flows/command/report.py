"""The command `shunter report`: a run as a single page for a browser."""

from pathlib import Path

from shunter.errors import RequestError


def write_report(run: str, out: Path | None = None) -> tuple[str, Path]:
    """Write the report of a run to a file.

    Args:
        run: Id of the run, a unique prefix of it, the name of the run, or `latest`.
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
    page = build_report(run_id)
    name = f"shunter-report-{run_id[:8]}.html"
    path = out / name if out is not None and out.is_dir() else out or Path(name)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise RequestError(
            f"The report cannot be written to {path} ({error.strerror}): name another with --out."
        ) from error
    return run_id, path
