"""The commands that start, stop and show the servers."""

from pathlib import Path
from typing import Annotated

import typer

from shunter.flows.command.environment import ROOM_BYTES, ensure_home
from shunter.flows.command.terminal import one_sentence_errors, print_json, print_line


def up(
    *,
    prefect_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of Prefect's UI; if omitted, as last time, or 4200."),
    ] = None,
    mlflow_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of MLflow's UI; if omitted, as last time, or 5000."),
    ] = None,
    nightly_data: Annotated[
        str | None, typer.Option(help="Switch nightly retraining on: pattern of the days' files, with {date} in it.")
    ] = None,
    nightly_schema: Annotated[str | None, typer.Option(help="File that names the columns of the days' files.")] = None,
    nightly_register_as: Annotated[
        str | None,
        typer.Option(help="Name of the model that is retrained nightly; if omitted, it follows from --nightly-data."),
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
            data=nightly_data,
            schema_file=nightly_schema,
            register_as=nightly_register_as,
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
        from shunter.flows.command.daemons import log_of
        from shunter.hardware.leases import all_leases
        from shunter.operation.background_services import login_advice, missing_services, night_ahead, running_services

        leases = all_leases()
        services = running_services()
        missing, night = missing_services(services), night_ahead(services)
        if as_json:
            running = [one.model_dump(mode="json", include={"name", "pid", "url", "log"}) for one in services]
            held = [{"accelerator": name, **lease.model_dump(mode="json")} for name, lease in leases]
            print_json({"running": running, "missing": missing, "next_night": night, "leases": held})
        else:
            for daemon in services:
                print_line(f"{daemon.name}: {daemon.url} (process {daemon.pid}, log {daemon.log})")
            if any(daemon.name == "Prefect" for daemon in services):
                print_line(login_advice())
            if not services:
                print_line("Nothing is running: `shunter up` starts everything.")
            if night:
                print_line(night)
            for name, lease in leases:
                print_line(lease.sentence(name))
            for name in missing:
                print_line(f"{name}: not running, `shunter up` starts it again (log {log_of(name)})")
    if missing:
        raise typer.Exit(1)


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
