"""Background services of this machine for `shunter up`, `down` and `status`: servers, worker and deployments."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from zoneinfo import available_timezones

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field

from shunter.checked_json import read_or_quarantine, write_checked
from shunter.errors import RequestError
from shunter.files import make_private
from shunter.flows.command.daemons import Daemon, find, start, stop, stop_idle_servers
from shunter.flows.command.passwords import password_path, prefect_login
from shunter.flows.command.services import Service, free_port, wait_until_ready
from shunter.ingestion.sources.addresses import whole_path
from shunter.ingestion.sources.guard import open_to_deployments, roots_of_deployments
from shunter.operation.servers import mlflow_service, prefect_service, resolve_database, worker_service
from shunter.registry import Entry, Registry
from shunter.settings import Settings
from shunter.tracking.links import runs_table_links

NAMES = ("Prefect", "MLflow", "Worker")  # in the order of their start

# Fields of `NightlySchedule` that have no effect without data.
NIGHT_FIELDS = ("schema_file", "register_as", "trials", "nightly_epochs", "promote")
NIGHTLY_CRON = "0 3 * * *"

# Functions that prepare the data of a schedule before the servers start, and return the name of the retrained model.
SCHEDULES = Registry(
    "schedule", {"nightly": Entry(target="shunter.retraining.day_files:prepare_nightly_runs")}, "shunter.schedules"
)

# Functions that write the example files, which forms name by default, to the user's data folder.
EXAMPLES = Registry(
    "example files", {"fleet": Entry(target="shunter.extensions.fleet.requests:write_examples")}, "shunter.examples"
)

Say = Callable[[str], None]


class Ports(BaseModel):
    """Ports of the web interfaces."""

    model_config = ConfigDict(frozen=True)

    prefect: int = Field(default=4200)
    mlflow: int = Field(default=5000)

    @classmethod
    def chosen(cls, prefect: int | None, mlflow: int | None) -> Self:
        """Return the given ports; a missing port is that of the last start, because a running worker may use it."""
        last = read_or_quarantine(_ports_path(), cls.model_validate_json) or cls()
        return cls(prefect=prefect or last.prefect, mlflow=mlflow or last.mlflow)


def up(
    ports: Ports,
    directory: Path,
    say: Say,
    data_roots: Sequence[Path] = (),
    database: str | None = None,
    **nightly: Any,
) -> None:
    """Start the services that do not run yet; running services are unchanged.

    Args:
        ports: Ports of the web interfaces; the port of a running interface is not changed.
        directory: Base folder of relative paths in the arguments.
        say: Called with a message about each service and deployment.
        data_roots: Additional folders that triggered runs may read from now on.
        database: Address of Prefect's PostgreSQL database, or `sqlite`; None for the database of the last start.
        **nightly: Fields of `NightlySchedule`.

    Raises:
        RequestError: A port is in use, the path pattern of the daily files is invalid, or `nightly` has options but no
            `data`. Or a database is given although Prefect's server runs already.
        UnreachableDatabaseError: Prefect's database accepts no connection.
        DataError: The newest daily file for the nightly runs cannot be read, or their folder has files but none matches
            the pattern.
        MissingExtensionError: Nightly retraining is requested, but the folder `retraining/` is absent.
        ShunterError: A service does not start; the services that this call has started are stopped again.
    """
    check_schedule(nightly.get("cron"), nightly.get("timezone"))
    if nightly.get("data") is None and any(nightly.get(name) is not None for name in NIGHT_FIELDS):
        raise RequestError("The options --nightly-* need --nightly-data, which switches nightly retraining on.")
    with _one_at_a_time(), contextlib.ExitStack() as undo:
        stop_idle_servers()
        if data_roots:
            open_to_deployments([directory / root for root in data_roots], data=True)
        folder = roots_of_deployments()[0]
        folder.mkdir(parents=True, exist_ok=True)
        if folder == Settings().deployment_data_directory.resolve():  # Shunter's own folder, not one of the user
            for name in EXAMPLES.names:
                EXAMPLES.load(name)(folder)
        given = {name: value for name, value in nightly.items() if value is not None}
        if "data" in given:
            name = SCHEDULES.load("nightly")(given["data"], given.get("schema_file"), directory, say)
            given.setdefault("register_as", name)
            given |= {field: whole_path(given[field], directory) for field in ("data", "schema_file") if field in given}
        if database is not None and find("Prefect"):
            raise RequestError(
                "Prefect still runs on its former database: stop it with `shunter down` before changing "
                "--prefect-database."
            )
        servers = [prefect_service(ports.prefect, resolve_database(database)), mlflow_service(ports.mlflow)]
        _check_server_of_worker(servers[0])
        worker = None if find("Prefect") else find("Worker")
        prefect, mlflow = _ensure(servers, undo, say)
        if worker is not None:
            # Prefect's worker misses cancellations after its server was unreachable for some seconds.
            stop(worker)
            say("The worker had lost its server: it is restarted.")
        with _connected_to(prefect.url):
            from shunter.operation.deployments import NightlySchedule, register_deployments
            from shunter.operation.recovery import recover

            names = register_deployments(folder, NightlySchedule.model_validate(given))
            recover(say, server_since=prefect.since, has_worker=find("Worker") is not None)
            _ensure([worker_service(prefect.url, free_port())], undo, say)
        say(f"Deployments: {', '.join(name.partition('/')[0] for name in names)}")
        say(f"Data for their forms: {', '.join(map(str, roots_of_deployments()))}; relative paths count from {folder}")
        say(login_advice())
        used = Ports(prefect=prefect.port, mlflow=mlflow.port)
        write_checked(_ports_path(), used.model_dump_json())
        for experiment, link in runs_table_links().items():
            say(f"Runs of {experiment}: {link}")
        undo.pop_all()


def check_schedule(cron: str | None, timezone: str | None) -> None:
    """Raise before any server starts if Prefect would refuse the schedule of nightly runs.

    Raises:
        RequestError: The cron expression or the time zone is invalid.
    """
    if timezone is not None and timezone not in available_timezones():
        raise RequestError(f"--timezone {timezone}: no such time zone, use a name such as Europe/Berlin or UTC.")
    if cron is not None and cron != NIGHTLY_CRON:
        from prefect.client.schemas.schedules import CronSchedule

        try:
            CronSchedule(cron=cron)
        except ValueError as error:
            raise RequestError(
                f"--nightly-cron {cron!r} is no cron expression: give five fields such as '{NIGHTLY_CRON}', every day "
                "at three."
            ) from error


def down(say: Say) -> None:
    """Stop the services that `up` started; runs stop after a checkpoint and resume at the next `up`."""
    with _one_at_a_time():
        daemons = {daemon.name: daemon for daemon in running_services()}
        if stop_idle_servers():
            say("Prefect's idle server is stopped.")
        if not daemons:
            say("Nothing that `shunter up` has started is running.")
        if "Prefect" in daemons:
            _stop_runs(daemons["Prefect"], has_worker="Worker" in daemons, say=say)
        for name in reversed(NAMES):
            if name in daemons:
                stop(daemons[name])
                say(f"{name} is stopped.")


def running_services() -> list[Daemon]:
    """Return the services that run in the background."""
    return [daemon for name in NAMES if (daemon := find(name)) is not None]


def missing_services(running: Sequence[Daemon]) -> list[str]:
    """Return the names of services that do not run although other services run, because they ended unexpectedly."""
    there = {daemon.name for daemon in running}
    return [name for name in NAMES if name not in there] if there else []


def next_night(running: Sequence[Daemon]) -> str | None:
    """Return a sentence about the next nightly run; None if none is scheduled or the server does not answer."""
    import httpx

    server = next((daemon for daemon in running if daemon.name == "Prefect"), None)
    if server is None:
        return None
    with _connected_to(server.url):
        from shunter.operation.deployments import next_nightly_run

        try:
            return next_nightly_run()
        except httpx.HTTPError:
            return None


def login_advice() -> str:
    """Return a sentence about the file with the password of Prefect's web interface."""
    is_own = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or not password_path().exists()
    where = "of PREFECT_SERVER_API_AUTH_STRING" if is_own else f"in {password_path()}"
    return f"Prefect's page requires once the text {where}."


def _stop_runs(prefect: Daemon, *, has_worker: bool, say: Say) -> None:
    """Stop all runs, through their worker if it is alive; do nothing if the server does not answer."""
    import httpx

    with _connected_to(prefect.url):
        from shunter.operation.recovery import interrupt, recover

        try:
            interrupt(say) if has_worker else recover(say, server_since=prefect.since)
        except httpx.HTTPError as error:
            say(f"Prefect does not answer ({type(error).__name__}): the next `shunter up` takes care of its runs.")


def _ensure(services: list[Service], undo: contextlib.ExitStack, say: Say) -> list[Daemon]:
    """Start the services that do not run, all together, and wait until they answer."""
    daemons = {service.name: find(service.name) for service in services}
    started = []
    for service in services:
        if (present := daemons[service.name]) is not None:
            say(f"{service.name} is already up: {present.url}")
            continue
        daemon, process = start(service)
        undo.callback(stop, daemon)
        daemons[service.name] = daemon
        started.append((service, daemon, process))
    for service, daemon, process in started:
        wait_until_ready(service, process, f"read {daemon.log}")
        say(f"{service.name}: {service.url}" if service.name != "Worker" else "Worker: ready")
    return [daemon for daemon in daemons.values() if daemon is not None]


def _check_server_of_worker(prefect: Service) -> None:
    """Raise if Prefect's server would start on another port than the port that a running worker connects to."""
    last = Ports.chosen(None, None).prefect
    if find("Worker") and not find("Prefect") and prefect.port != last:
        raise RequestError(
            f"The worker is configured for Prefect on port {last}: leave out --prefect-port "
            f"{prefect.port}, or run `shunter down` first."
        )


def _ports_path() -> Path:
    return Settings().services_directory / "ports"


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    directory = Settings().services_directory
    make_private(directory)
    with FileLock(directory / "lock"):
        yield


@contextlib.contextmanager
def _connected_to(url: str) -> Iterator[None]:
    """Use a given Prefect server and its password in the block, instead of the server in the settings."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: f"{url}/api", PREFECT_API_AUTH_STRING: prefect_login()}):
        yield
