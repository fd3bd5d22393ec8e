"""Commands that list, report, upload and remove the results of earlier runs."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from shunter.flows.command.environment import ensure_home
from shunter.flows.command.rendering import number, print_table
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, print_line

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
        from shunter.flows.command.report import write_report, write_trend

        if nightly is not None:
            print_line(f"Nightly runs of {nightly}: {write_trend(nightly, out)}")
            return
        run_id, path = write_report(run, out)
        print_line(f"Report of run {run_id}: {path}")


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
