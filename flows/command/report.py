"""The command `shunter report`: a run as one page that anybody can open."""

from pathlib import Path

from shunter.errors import RequestError


def write_report(run: str, out: Path | None = None) -> tuple[str, Path]:
    """Write the report of a run to a file.

    Args:
        run: id, unique beginning of one, name, or `latest`.
        out: The file, or a folder for it; `shunter-report-<id>.html` in the working folder if omitted.

    Returns:
        The run's id, and the file.

    Raises:
        RequestError: No run is meant or several are, or the file cannot be written.
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
