"""`shunter up`, `down` and `status`: the servers, the worker and the deployments of this machine, in the background."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field

from flows.daemons import Daemon, find, start, stop
from flows.services import Service, free_port, mlflow_service, prefect_service, wait_until_ready, worker_service
from shunter.settings import Settings

NAMES = ("Prefect", "MLflow", "Worker")  # in the order of their start

Say = Callable[[str], None]


class Ports(BaseModel):
    """Where the web interfaces listen."""

    model_config = ConfigDict(frozen=True)

    prefect: int = Field(default=4200)
    mlflow: int = Field(default=5000)


def up(ports: Ports, directory: Path, say: Say, **nightly: str | None) -> None:
    """Start what does not run yet; what does is left alone.

    Args:
        ports: of the web interfaces.
        directory: from which relative paths of triggered runs count.
        say: told each thing that is there now.
        **nightly: as `NightlySchedule`.

    Raises:
        RequestError: a port is taken.
        ShunterError: a service does not start; those that this call has started are stopped again.
    """
    with _one_at_a_time(), contextlib.ExitStack() as undo:
        servers = [prefect_service(ports.prefect), mlflow_service(ports.mlflow)]
        prefect, _ = _ensure(servers, undo, say)
        with _connected_to(prefect.url):
            from flows.deployments import NightlySchedule, register_deployments
            from flows.recovery import recover

            given = {name: value for name, value in nightly.items() if value is not None}
            names = register_deployments(directory, NightlySchedule.model_validate(given))
            if find("Worker") is None:
                recover(say)
            _ensure([worker_service(prefect.url, free_port())], undo, say)
        say(f"Deployments: {', '.join(name.partition('/')[0] for name in names)}")
        undo.pop_all()


def down(say: Say) -> None:
    """Stop what `up` has started and nothing else; runs are stopped after a checkpoint and go on with the next `up`.

    Args:
        say: told what is stopped.
    """
    with _one_at_a_time():
        daemons = {daemon.name: daemon for daemon in running_services()}
        if not daemons:
            say("Nothing runs that `shunter up` has started.")
        if "Prefect" in daemons and "Worker" in daemons:
            with _connected_to(daemons["Prefect"].url):
                from flows.recovery import interrupt

                interrupt(say)
        for name in reversed(NAMES):
            if name in daemons:
                stop(daemons[name])
                say(f"{name} is stopped.")


def running_services() -> list[Daemon]:
    """What runs in the background."""
    return [daemon for name in NAMES if (daemon := find(name)) is not None]


def _ensure(services: list[Service], undo: contextlib.ExitStack, say: Say) -> list[Daemon]:
    """Start those that do not run, together, and wait until they answer."""
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


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    directory = Settings().services_directory
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / "lock"):
        yield


@contextlib.contextmanager
def _connected_to(url: str) -> Iterator[None]:
    """Talk to this Prefect server, whatever the settings say."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: f"{url}/api"}):
        yield
