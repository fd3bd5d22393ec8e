"""Commands without a flow: logs, runs, models, reports, leftovers, files of the home, prices and error codes."""

import re
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from shunter.errors import RequestError
from shunter.flows.command.environment import ensure_home
from shunter.flows.command.rendering import TextTable, number, print_table
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, print_line, say
from shunter.registry import Entry, Registry

if TYPE_CHECKING:
    from shunter.ingestion.check import Checked

# Functions that return the page of all runs of an application's schedule.
TREND_PAGES = Registry(
    "trend page", {"nightly": Entry(target="shunter.retraining.trend:build_trend")}, group="shunter.trend_pages"
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]


def datasets(as_json: AsJson = False) -> None:
    """List named data sets, and those in the cache."""
    with one_sentence_errors(as_json=as_json):
        from shunter.flows.command.listings import cache_table, cached_datasets, named_datasets_table
        from shunter.ingestion.sources.names import named_datasets

        if as_json:
            print_json({"named": [asdict(one) for one in named_datasets()], "cached": cached_datasets()})
            return
        print_table(console, named_datasets_table())
        print_table(console, cache_table(cached_datasets()))


def runs(
    limit: Annotated[int, typer.Option(min=1, help="Most runs to show.")] = 20,
    sort: Annotated[
        str,
        typer.Option(help="Order: started (newest first), auc, ne, rmse, mae, time, energy or auc-per-kj, best first."),
    ] = "started",
    where: Annotated[
        str | None, typer.Option(help="Condition of the runs to show, such as 'auc > .8 and energy < 2 kJ'.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List runs with quality, time, energy and placement."""
    with one_sentence_errors(as_json=as_json):
        from shunter.flows.command.listings import runs_table, selected_runs

        found = selected_runs(limit, sort, where)
        if as_json:
            print_json([{**run, "started": iso(run["started"])} for run in found])
        elif found:
            print_table(console, runs_table(found))
        elif where:
            print_line("No run meets the condition.")
        else:
            print_line("There is no training run yet: start one with `shunter train`.")


def models(as_json: AsJson = False) -> None:
    """List registered models with quality, time and energy."""
    with one_sentence_errors(as_json=as_json):
        from shunter.flows.command.listings import models_table
        from shunter.tracking.listing import list_versions

        found = list_versions()
        if as_json:
            print_json([{**one, "registered_at": iso(one["registered_at"])} for one in found])
        elif found:
            print_table(console, models_table(found))
        else:
            print_line("No model is registered yet: `shunter train` registers one.")


def iso(seconds: float) -> str:
    """Return a time in ISO format, for scripts."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def report(
    run: Annotated[
        str,
        typer.Argument(help="Run: id, start of the id, name, or latest (the newest finished run)."),
    ] = "latest",
    nightly: Annotated[
        str | None, typer.Option(help="Write the report on all nightly retrainings of this registered model.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File or folder for the report.")] = None,
) -> None:
    """Write the report page of a run, or of a model's retrainings."""
    with one_sentence_errors():
        if nightly is not None:
            print_line(f"Nightly runs of {nightly}: {write_trend(nightly, out)}")
            return
        run_id, path = write_report(run, out)
        print_line(f"Report of run {run_id}: {path}")


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
    return run_id, _write_page(build_report(run_id), f"shunter-report-{run_id[:8]}.html", out)


def write_trend(model: str, out: Path | None = None) -> Path:
    """Write the report page on all nightly retrainings of a registered model to a file, and return its path.

    Raises:
        MissingExtensionError: The folder `retraining/` is absent.
        RequestError: The model was never retrained by `shunter nightly`, or the file cannot be written.
        TrackingError: The store cannot be read.
    """
    page = TREND_PAGES.load("nightly")(model)
    return _write_page(page, f"shunter-nights-{re.sub(r'[^A-Za-z0-9._-]', '-', model)}.html", out)


def _write_page(page: str, name: str, out: Path | None) -> Path:
    path = out / name if out is not None and out.is_dir() else out or Path(name)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise RequestError(
            f"The report cannot be written to {path} ({error.strerror}): name another file with --out."
        ) from error
    return path


def sync() -> None:
    """Upload runs recorded while MLflow was unreachable."""
    with one_sentence_errors():
        from shunter.tracking.store import deliver as deliver_all

        done = deliver_all()
        print_line(
            f"{done.delivered} entries delivered, {done.refused} refused and quarantined, {done.waiting} still queued."
        )


def clean(
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the leftovers, instead of only listing them.")
    ] = False,
    days: Annotated[
        float, typer.Option(min=0.0, max=100_000.0, help="Keep files written in the last DAYS days.")
    ] = 1.0,
    unused_days: Annotated[
        float,
        typer.Option(
            min=1.0,
            max=100_000.0,
            help="Keep data sets, interrupted runs and table rows used in the last UNUSED_DAYS days.",
        ),
    ] = 90.0,
    as_json: AsJson = False,
) -> None:
    """List or remove leftovers of killed and old runs."""
    with one_sentence_errors(as_json=as_json):
        from shunter.flows.command.listings import leftovers_table
        from shunter.tasks.retention import find_unused
        from shunter.tracking.leftovers import DAY_SECONDS, find_leftovers
        from shunter.tracking.store import tracking_errors

        ensure_home()
        found = [*find_leftovers(days * DAY_SECONDS), *find_unused(unused_days * DAY_SECONDS)]
        if not as_json:
            print_table(console, leftovers_table(found))
            if not found:
                print_line("There are no leftovers.")
        if remove:
            with tracking_errors():
                for leftover in found:
                    leftover.remove()
        if as_json:
            rows = ("what", "name", "age_seconds", "size_bytes")
            print_json([{**{name: getattr(one, name) for name in rows}, "removed": remove} for one in found])
        elif found:
            size = f"{number(sum(leftover.size_bytes for leftover in found) / 2**20)} MiB"
            count = "1 leftover" if len(found) == 1 else f"{len(found):,} leftovers"
            end = f" removed, {size}." if remove else f", {size}: `shunter clean --remove` makes room."
            print_line(f"{count}{end}")


def doctor(
    check: Annotated[bool, typer.Option("--check", help="Only report; change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")] = False,
) -> None:
    """Check files and runs of Shunter's home and repair them.

    The exit code is 1 if a problem remains.
    """
    with one_sentence_errors(as_json=as_json):
        from shunter.flows.command.daemons import stop_idle_servers
        from shunter.flows.command.listings import doctor_table
        from shunter.tasks.doctor import examine

        if not check:
            stop_idle_servers()  # an idle server has Prefect's database open
        found = examine(mends=not check)
        if as_json:
            print_json([{**asdict(one), "state": one.state} for one in found])
        else:
            print_table(console, doctor_table(found))
            if not found:
                print_line("The home is empty.")
            for one in found:
                if one.advice:
                    print_line(f"{one.path}: {one.fault}. {one.advice}")
    if not all(one.is_settled for one in found):
        raise typer.Exit(1)


def check(  # noqa: PLR0917 - options of a command
    data: Annotated[str, typer.Argument(help="Click log: file, folder, glob, list or address.")],
    schema: Annotated[str | None, typer.Option(help="Schema file or address; inferred if omitted.")] = None,
    data_format: Annotated[str | None, typer.Option("--format", help="Format of the log; guessed if omitted.")] = None,
    where: Annotated[
        str | None, typer.Option(help="Predicate of the rows to read, such as 'day >= 5'; all rows if omitted.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="File or address to write the inferred schema to.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, errors too.")] = False,
) -> None:
    """Check a click log and infer its schema; train nothing."""
    with one_sentence_errors(as_json=as_json):
        from shunter.ingestion.check import check as look_at
        from shunter.ingestion.sources.addresses import parse_address, without_file_scheme

        if out is not None and parse_address(out) is None and Path(without_file_scheme(out)).exists():
            raise RequestError(f"--out {out} exists: name a new file, or remove it first.")
        checked = look_at(data, data_format, schema, where)
        if out is not None and checked.schema is not None:
            _write_schema(out, checked.schema)
        if as_json:
            print_json(checked.to_dict())
        else:
            _print_checked(checked, data, out)


def _write_schema(out: str, text: str) -> None:
    from shunter.ingestion.sources.addresses import output_path

    try:
        with output_path(out, "--out") as path:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"--out {out} cannot be written ({error.strerror}): name another file.") from error


def _print_checked(checked: "Checked", data: str, out: str | None) -> None:
    """Print the schema on standard output, so that `>` can save it, and all other findings on standard error."""
    looked_at = f"looked at {checked.rows:,} rows, {checked.positive_share:.1%} of them positive"
    say(f"{checked.name} ({checked.data_format}): {looked_at}.")
    if checked.bad_rows:
        say(f"{checked.bad_rows:,} more rows cannot be read, such as {checked.first_fault}.")
    for finding in checked.findings:
        say(f"- {finding.words}")
    if not checked.findings:
        say("No findings.")
    if checked.schema is None:
        if out is not None:
            say(f"Nothing was written to {out}: the log has its schema.")
        return
    if out is None:
        print_line(checked.schema.rstrip("\n"))
    file = out or "schema.yaml"
    kept = "Written" if out else "Save it with `> schema.yaml`, check it"
    say(f"{kept}, then: shunter train --data {data} --schema {file}")


def prices(
    file: Annotated[
        Path, typer.Argument(help="CSV file of a cloud's prices, such as ~/.sky/catalogs/v8/lambda/vms.csv.")
    ],
    region: Annotated[str | None, typer.Option(help="Region of the cloud; if omitted, the cheapest of all.")] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Use the prices of interruptible (spot) machines.")] = False,
) -> None:
    """Update the catalogue's prices from a SkyPilot catalogue.

    The prices go into the user's catalogue, dated by the day of the file. A price is in US dollars per hour, for one
    accelerator with its share of the host.
    """
    with one_sentence_errors():
        from shunter.hardware.catalogue.prices import SkyPilotPrices, update_catalogue_prices
        from shunter.settings import settings

        path = settings().catalogue_path
        updates = update_catalogue_prices(SkyPilotPrices(file=file, region=region, spot=spot), path)
        rows = [(one.name, number(one.former), number(one.price)) for one in updates]
        print_table(console, TextTable(("accelerator", "former price per hour", "price per hour"), rows))
        print_line(f"{len(rows)} prices were written to {path}.")


class ErrorCode(NamedTuple):
    """Meaning of an error code."""

    exit_code: int
    cause: str
    remedy: str


@cache
def error_codes() -> dict[str, ErrorCode]:
    """Return the meaning of every error code; `docs/reference/errors.md` has the same rows."""
    from shunter.yaml_file import load_yaml

    rows = load_yaml(Path(__file__).with_name("error_codes.yaml").read_text(encoding="utf-8"))
    return {name: ErrorCode(**row) for name, row in rows.items()}


def explain(
    code: Annotated[
        str | None,
        typer.Argument(help="Error code, as --json shows it, or exit code; if omitted, all codes are listed."),
    ] = None,
) -> None:
    """Explain an error code: its cause and its remedy."""
    with one_sentence_errors():
        print_table(console, codes_table(code))


def codes_table(code: str | None) -> TextTable:
    """Return the rows of a code, of the codes that share an exit code, or of all codes.

    Raises:
        RequestError: The code does not exist.
    """
    found = {name: one for name, one in error_codes().items() if code in (None, name, str(one.exit_code))}
    if not found:
        raise RequestError(f"There is no error code {code!r}: `shunter explain` lists all of them.")
    rows = [(name, str(one.exit_code), one.cause, one.remedy) for name, one in found.items()]
    if len(rows) == 1:
        titles = ("Code", "Exit code", "Cause", "Remedy")
        return TextTable((), list(zip(titles, rows[0], strict=True)))
    return TextTable(("code", "exit", "cause", "remedy"), rows)
