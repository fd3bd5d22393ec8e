"""The commands `shunter up`, `down`, `status` and `ui`, which start, stop and show the servers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shunter.flows.command.environment import ROOM_BYTES, ensure_home
from shunter.flows.command.rendering import TextTable, number, print_table
from shunter.flows.command.terminal import console, one_sentence_errors, print_json, print_line
from shunter.requests.training import Promote

if TYPE_CHECKING:
    from shunter.flows.command.daemons import Daemon
    from shunter.hardware.leases import Lease


def up(
    *,
    prefect_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of Prefect's UI; if omitted, the last one used, or 4200."),
    ] = None,
    mlflow_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of MLflow's UI; if omitted, the last one used, or 5000."),
    ] = None,
    data_root: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Additional folder from which Prefect's forms may read data; remembered, repeatable.",
        ),
    ] = None,
    prefect_database: Annotated[
        str | None,
        typer.Option(
            envvar="SHUNTER_PREFECT_DATABASE_URL",
            help="Prefect's database: postgresql://HOST/NAME, or sqlite; if omitted, the last one used, or sqlite.",
        ),
    ] = None,
    nightly_data: Annotated[
        str | None, typer.Option(help="Turn on nightly retraining: pattern of the daily log files, with {date} in it.")
    ] = None,
    nightly_schema: Annotated[
        str | None, typer.Option(help="Schema file, which names the columns of the daily log files.")
    ] = None,
    nightly_register_as: Annotated[
        str | None,
        typer.Option(help="Registered model to retrain nightly; if omitted, a name derived from --nightly-data."),
    ] = None,
    nightly_trials: Annotated[
        int | None,
        typer.Option(min=1, help="Search trials of the first nightly run, which has no champion to start from."),
    ] = None,
    nightly_epochs: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of epochs of a nightly challenger.")
    ] = None,
    nightly_promote: Annotated[
        Promote | None,
        typer.Option(help="Condition under which a challenger becomes champion; if omitted, confident."),
    ] = None,
    nightly_cron: Annotated[str, typer.Option(help="Cron expression of the nightly schedule.")] = "0 3 * * *",
    timezone: Annotated[
        str, typer.Option(help="Time zone of the schedule and of the days, such as Europe/Berlin.")
    ] = "UTC",
) -> None:
    """Start Prefect, MLflow and a worker in the background."""
    with one_sentence_errors():
        ensure_home(room_bytes=ROOM_BYTES)
        from shunter.operation.background_services import Ports
        from shunter.operation.background_services import up as start_all

        start_all(
            Ports.chosen(prefect_port, mlflow_port),
            Path.cwd(),
            print_line,
            data_root or (),
            prefect_database,
            data=nightly_data,
            schema_file=nightly_schema,
            register_as=nightly_register_as,
            trials=nightly_trials,
            nightly_epochs=nightly_epochs,
            promote=nightly_promote,
            cron=nightly_cron,
            timezone=timezone,
        )


def down() -> None:
    """Stop what `shunter up` has started.

    Training jobs stop after a checkpoint; the next `shunter up` resumes them.
    """
    with one_sentence_errors():
        ensure_home()
        from shunter.operation.background_services import down as stop_all

        stop_all(print_line)


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, errors too.")] = False,
) -> None:
    """Show services, training jobs and the next nightly run.

    The exit code is 1 if a service has ended.
    """
    with one_sentence_errors(as_json=as_json):
        from shunter.flows.command.daemons import idle_servers
        from shunter.hardware.leases import all_leases
        from shunter.operation.background_services import login_advice, missing_services, next_night, running_services

        leases = all_leases()
        services = running_services()
        missing, night = missing_services(services), next_night(services)
        if as_json:
            shown = {"name", "pid", "url", "log"}
            running = [one.model_dump(mode="json", include=shown) for one in services]
            idle = [one.model_dump(mode="json", include=shown) for one in idle_servers()]
            held = [{"accelerator": name, **lease.model_dump(mode="json")} for name, lease in leases]
            print_json({"running": running, "missing": missing, "idle": idle, "next_night": night, "leases": held})
        else:
            print_table(console, services_table(services, missing))
            if any(daemon.name == "Prefect" for daemon in services):
                print_line(login_advice())
            for server in idle_servers():
                print_line(
                    f"Prefect's server for the next commands waits at {server.url} (process {server.pid}); "
                    "`shunter down` stops it."
                )
            if not services:
                print_line("No service of `shunter up` runs: `shunter up` starts all.")
            if night:
                print_line(night)
            print_table(console, jobs_table(leases))
    if missing:
        raise typer.Exit(1)


def services_table(running: "Sequence[Daemon]", missing: Sequence[str]) -> TextTable:
    """Return a table of the services that run and the services that ended unexpectedly."""
    from shunter.flows.command.daemons import log_of

    rows = [(one.name, "running", one.url, str(one.pid), str(one.log)) for one in running]
    rows += [(name, "ended: shunter up", "", "", str(log_of(name))) for name in missing]
    return TextTable(("service", "state", "address", "process", "log"), rows)


def jobs_table(leases: "Sequence[tuple[str, Lease]]") -> TextTable:
    """Return a table of the training jobs that use an accelerator."""
    rows = [
        (
            one.name,
            f"{accelerator} x{one.cores}" if one.cores > 1 else accelerator,
            number(one.memory_bytes / 2**30, "GiB") if one.memory_bytes else "",
            str(one.pid),
            f"{one.since:%m-%d %H:%M}",
            f"{one.until:%m-%d %H:%M}" if one.until else "",
        )
        for accelerator, one in leases
    ]
    return TextTable(("job", "accelerator", "memory", "process", "since (UTC)", "until, predicted"), rows)


def ui(
    prefect_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Prefect's UI on loopback.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of MLflow's UI on loopback.")] = 5000,
) -> None:
    """Start the web pages of Prefect and MLflow until Ctrl-C."""
    with one_sentence_errors("Stopped."):
        ensure_home()
        from shunter.operation.background_services import login_advice, running_services
        from shunter.operation.servers import mlflow_service, prefect_service, serve

        if up_already := [daemon for daemon in running_services() if daemon.name != "Worker"]:
            for daemon in up_already:
                print_line(f"{daemon.name}: {daemon.url}")
            print_line(login_advice())
            return
        services = [prefect_service(prefect_port), mlflow_service(mlflow_port)]
        print_line(login_advice())
        serve(services, on_ready=lambda service: print_line(f"{service.name}: {service.url}"))
