"""The command `shunter`. It starts light: Prefect, MLflow and torch are imported by the command that needs them."""

import contextlib
import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flows.environment import check_packages, ensure_home, prepare_environment, start_temporary_server
from flows.options import build, with_options
from shunter.errors import ShunterError
from shunter.requests.nightly import NightlyRequest
from shunter.requests.profile import ProfileRequest
from shunter.requests.training import SelectRequest, TrainRequest

INTERRUPTED = 130  # what a shell reports for Ctrl-C

app = typer.Typer(
    name="shunter",
    help="Puts every recommendation-model training on its right accelerator.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and the servers' logs.")] = False,
) -> None:
    """Prepare the process before any command runs."""
    if debug:
        os.environ["SHUNTER_DEBUG"] = "1"
    prepare_environment(debug=debug)


FRESH = inspect.Parameter(
    "fresh",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--fresh", help="Start anew instead of resuming an interrupted run of the same request.")
    ],
)


@app.command()
@with_options(TrainRequest, FRESH)
def train(**options: Any) -> None:
    """Train a recommender: ingest, profile, select, tune, train, ensemble, register."""
    with one_sentence_errors("Interrupted: give the same command again to resume where it stopped."):
        fresh = options.pop("fresh")
        request = build(TrainRequest, options)
        check_packages()
        from models.names import check_model

        check_model(request.model)  # the flow does too, but only after the servers have been started
        ensure_home()
        from prefect.exceptions import TerminationSignal

        from flows.summary import print_summary
        from flows.train import train as train_flow

        console.print(f"Training on {request.data}; details are in Prefect and MLflow: `shunter ui`.", soft_wrap=True)
        start_temporary_server()
        try:
            summary = train_flow(request, fresh=fresh)
        except TerminationSignal as signal_received:  # SIGTERM, by Prefect's hand
            raise KeyboardInterrupt from signal_received
        print_summary(console, summary)
        say_undelivered()


@app.command()
@with_options(TrainRequest)
def tune(**options: Any) -> None:
    """Search settings or architectures and print the best to choose from; nothing is trained to the end."""
    with one_sentence_errors("Interrupted: give the same command again to go on with the search."):
        request = build(TrainRequest, options)
        check_packages()
        from models.names import check_model

        check_model(request.model)
        ensure_home()
        from prefect.exceptions import TerminationSignal

        from flows.tables import front_table
        from flows.tuning import tune_only

        start_temporary_server()
        try:
            result = tune_only(request)
        except TerminationSignal as signal_received:  # SIGTERM, by Prefect's hand
            raise KeyboardInterrupt from signal_received
        console.print(front_table(result))
        say_undelivered()


AS_JSON = inspect.Parameter(
    "as_json",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--json", help="Print everything as one JSON object, errors too.")],
)
EVERY_ROW = inspect.Parameter(
    "every_row",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--every-row", help="Print every placement, not only the best of each accelerator.")
    ],
)


@app.command()
@with_options(SelectRequest, AS_JSON, EVERY_ROW)
def select(**options: Any) -> None:
    """Choose where a training should run, and say why, before anything expensive runs; the catalogue's too."""
    as_json, every_row = options.pop("as_json"), options.pop("every_row")
    with one_sentence_errors(as_json=as_json):
        request = build(SelectRequest, options)
        check_packages()
        from models.names import check_model

        check_model(request.model)
        ensure_home()
        from flows.selection import choose_placement, decision_as_json
        from flows.tables import decision_table

        start_temporary_server()
        decision = choose_placement(request)
        if as_json:
            print_json(decision_as_json(decision))
            return
        console.print(decision_table(decision, every_row=every_row))
        for paragraph in (decision.explanation, *decision.notes):
            console.print(paragraph, highlight=False, markup=False)


REFRESH = inspect.Parameter(
    "refresh",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--refresh", help="Measure again although today's figures are there.")],
)


@app.command()
@with_options(ProfileRequest, REFRESH)
def profile(**options: Any) -> None:
    """Measure this machine, kept for a day; with --data also where a training on it waits, and what to change."""
    with one_sentence_errors():
        refresh = options.pop("refresh")
        request = build(ProfileRequest, options)
        check_packages()
        ensure_home()
        from prefect.exceptions import TerminationSignal

        from engine.stalls.search import check_request
        from flows.profile_tables import print_profile
        from flows.profiling import profile as profile_flow

        check_request(request)
        start_temporary_server()
        try:
            summary = profile_flow(request, refresh=refresh)
        except TerminationSignal as signal_received:  # SIGTERM, by Prefect's hand
            raise KeyboardInterrupt from signal_received
        print_profile(console, summary)


@app.command()
@with_options(NightlyRequest)
def nightly(**options: Any) -> None:
    """Learn the newest days of a log, and replace the champion only by what is better: once a day, or by hand."""
    with one_sentence_errors("Interrupted: give the same command again to go on where it stopped."):
        request = build(NightlyRequest, options)
        check_packages()
        ensure_home()
        from prefect.exceptions import TerminationSignal

        from flows.nightly import nightly as nightly_flow

        start_temporary_server()
        try:
            night = nightly_flow(request)
        except TerminationSignal as signal_received:  # SIGTERM, by Prefect's hand
            raise KeyboardInterrupt from signal_received
        for sentence in (*(finding.words for finding in night.findings), night.reason):
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)


@app.command()
def rollback(
    model: Annotated[str, typer.Option(help="Name of the registered model.")] = "shunter",
    to: Annotated[int | None, typer.Option(min=1, help="Version to put back; the former champion when absent.")] = None,
) -> None:
    """Put the former champion back; again, and it is the one before that."""
    with one_sentence_errors():
        ensure_home()
        from flows.rollback import rollback as rollback_flow

        # The bare function: who needs the former model back does not wait for a server that only watches.
        console.print(rollback_flow.fn(model, to).words, highlight=False, markup=False, soft_wrap=True)


@app.command()
def datasets() -> None:
    """List the data sets that `--data` knows by name, and what is in the cache."""
    with one_sentence_errors():
        from flows.tables import cache_table, named_datasets_table

        console.print(named_datasets_table())
        console.print(cache_table())


@app.command()
def runs(limit: Annotated[int, typer.Option(min=1, help="Most runs to show, newest first.")] = 20) -> None:
    """List past trainings with their quality, time, energy and placement."""
    with one_sentence_errors():
        from flows.tables import runs_table

        console.print(runs_table(limit))


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="Id, unique beginning of one, or name of a run; or latest.")] = "latest",
    out: Annotated[Path | None, typer.Option(help="File to write, or a folder for it.")] = None,
) -> None:
    """Write one page about a run: decision, curves, stalls, energy, features; it opens without any server."""
    with one_sentence_errors():
        from flows.report import write_report

        run_id, path = write_report(run, out)
        console.print(f"Report of run {run_id}: {path}", soft_wrap=True, highlight=False, markup=False)


@app.command()
def deliver() -> None:
    """Hand MLflow what it could not take while it was away."""
    with one_sentence_errors():
        from tracking.store import deliver as deliver_all

        done = deliver_all()
        say_line(f"{done.delivered} entries delivered, {done.refused} refused and set aside, {done.waiting} wait.")


PrefectPort = Annotated[int, typer.Option(min=1, max=65535, help="Port of Prefect's UI on loopback.")]
MlflowPort = Annotated[int, typer.Option(min=1, max=65535, help="Port of MLflow's UI on loopback.")]


@app.command()
def up(
    *,
    prefect_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Of Prefect's UI: 4200 at first.")] = None,
    mlflow_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Of MLflow's UI: 5000 at first.")] = None,
    nightly_data: Annotated[
        str | None, typer.Option(help="Switch nightly retraining on: pattern of the days' files, with {date} in it.")
    ] = None,
    nightly_schema: Annotated[str | None, typer.Option(help="File that names the columns of the days.")] = None,
    nightly_cron: Annotated[str, typer.Option(help="When it runs, as five fields.")] = "0 3 * * *",
    timezone: Annotated[str, typer.Option(help="Whose clock and days it goes by, such as Europe/Berlin.")] = "UTC",
) -> None:
    """Start Prefect, MLflow, a worker and the deployments in the background, all on loopback; again: only the rest."""
    with one_sentence_errors():
        check_packages()
        ensure_home()
        from flows.operation import Ports
        from flows.operation import up as start_all

        start_all(
            Ports.chosen(prefect_port, mlflow_port),
            Path.cwd(),
            say_line,
            data=nightly_data,
            schema_file=nightly_schema,
            cron=nightly_cron,
            timezone=timezone,
        )


@app.command()
def down() -> None:
    """Stop what `shunter up` has started; runs stop after a checkpoint and go on with the next `shunter up`."""
    with one_sentence_errors():
        ensure_home()
        from flows.operation import down as stop_all

        stop_all(say_line)


@app.command()
def status() -> None:
    """Say what `shunter up` has started, and where."""
    with one_sentence_errors():
        from flows.operation import running_services

        services = running_services()
        for daemon in services:
            say_line(f"{daemon.name}: {daemon.url} (process {daemon.pid}, log {daemon.log})")
        if not services:
            say_line("Nothing runs: `shunter up` starts it.")


@app.command()
def ui(prefect_port: PrefectPort = 4200, mlflow_port: MlflowPort = 5000) -> None:
    """Start the UIs of Prefect and MLflow on loopback, until Ctrl-C."""
    with one_sentence_errors("Stopped."):
        ensure_home()
        from flows.operation import running_services
        from flows.services import mlflow_service, prefect_service, serve

        if up_already := [daemon for daemon in running_services() if daemon.name != "Worker"]:
            for daemon in up_already:
                say_line(f"{daemon.name}: {daemon.url}")
            return
        services = [prefect_service(prefect_port), mlflow_service(mlflow_port)]
        serve(services, on_ready=lambda service: console.print(f"{service.name}: {service.url}"))


@contextlib.contextmanager
def one_sentence_errors(interrupted: str = "Interrupted.", *, as_json: bool = False) -> Iterator[None]:
    """Turn what a user can mend into one sentence and an exit code; `--debug` keeps the traceback.

    Args:
        interrupted: said after Ctrl-C.
        as_json: also print the error as a JSON object on standard output.
    """
    try:
        yield
    except KeyboardInterrupt:
        say(interrupted)
        raise SystemExit(INTERRUPTED) from None
    except ShunterError as error:
        if os.environ.get("SHUNTER_DEBUG") == "1":
            raise
        if as_json:
            from flows.selection import error_as_json

            print_json(error_as_json(error))
        say(f"Error: {error}")
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        if os.environ.get("SHUNTER_DEBUG") == "1":
            raise
        say(f"Unexpected error, please report it with the output of `shunter --debug`: {type(error).__name__}: {error}")
        raise SystemExit(1) from None


def print_json(value: Any) -> None:
    """Print one JSON object on standard output, and nothing else."""
    typer.echo(json.dumps(value, indent=1, allow_nan=False))


def say_line(sentence: str) -> None:
    """Print one sentence on standard output, whatever it holds and however long it is."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def say_undelivered() -> None:
    """Say how much MLflow has not got yet, and what hands it over; nothing when it has everything."""
    from tracking.store import undelivered

    if waiting := undelivered():
        say(f"MLflow was away, {waiting} entries wait for it: `shunter deliver` hands them over when it is back.")


def say(sentence: str) -> None:
    """Print one sentence on stderr, whatever it holds and however long it is."""
    errors.print(sentence, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Entry point of the command."""
    app()
