"""Background services that continue after the command that started them, recorded in files for later commands.

After a command, Prefect's server stays idle for the next command. A command that uses the server has a shared lock on a
file. The server acquires the exclusive lock before it ends, so it never ends while a command uses it. The operating
system releases the lock of a killed command at once.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field

from shunter.checked_json import read_or_quarantine, write_checked
from shunter.errors import ShunterError
from shunter.files import make_private
from shunter.flows.command.services import Service, check_port
from shunter.hardware.devices.process_mark import process_mark
from shunter.python_processes import start_python
from shunter.settings import Settings
from shunter.tasks.upkeep import rotate

POLL_SECONDS = 0.2
IDLE = "prefect-idle"  # prefix of the file names of idle servers
PROGRAM = Path(__file__).with_name("temporary_server_process.py")


class Daemon(BaseModel):
    """Service of Shunter that runs in the background."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int = Field(description="Id of the process, which leads its own process group.")
    mark: str = Field(
        description="Boot id and start time of the process; a later process with the same pid has another mark."
    )
    url: str
    log: Path

    @property
    def port(self) -> int:
        """Port on which the service listens."""
        return int(self.url.rpartition(":")[2])

    @property
    def since(self) -> datetime:
        """Start time of the running service."""
        import psutil

        return datetime.fromtimestamp(psutil.Process(self.pid).create_time(), UTC)

    def poll(self) -> int | None:
        """Return None while the process runs, otherwise 0, because its exit code is unknown."""
        return None if self.is_alive else 0

    @property
    def is_alive(self) -> bool:
        """Return True if the process still runs; a later process with the same pid does not count."""
        return process_mark(self.pid) == self.mark


def find(name: str) -> Daemon | None:
    """Return the background service with a name if it runs; otherwise remove its record and return None."""
    path = path_of(name)
    daemon = read_or_quarantine(path, Daemon.model_validate_json)
    if daemon is None or daemon.is_alive:
        return daemon
    path.unlink(missing_ok=True)
    return None


def log_of(name: str) -> Path:
    """Return the log file of the service with a name."""
    return path_of(name).with_suffix(".log")


def path_of(name: str) -> Path:
    """Return the record file of the service with a name."""
    return Settings().services_directory / f"{name.lower()}.json"


def start(service: Service) -> tuple[Daemon, "subprocess.Popen[bytes]"]:
    """Start a service in the background, without waiting until it answers.

    Raises:
        RequestError: The port of the service is in use.
        ShunterError: The service ended at once, or its files cannot be written.
    """
    check_port(service)
    path = path_of(service.name)
    log = path.with_suffix(".log")
    try:
        make_private(path.parent)
        rotate(log)
        with log.open("ab") as output:
            process = start_python(
                *service.command,
                environment={**os.environ, **service.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # so that neither Ctrl-C nor SIGHUP reaches the service
            )
        mark = process_mark(process.pid)
        if mark is None:
            raise ShunterError(f"The service {service.name} ended while starting: see its log {log}.")
        daemon = Daemon(name=service.name, pid=process.pid, mark=mark, url=service.url, log=log)
        write_checked(path, daemon.model_dump_json())
    except OSError as error:
        raise ShunterError(
            f"The service {service.name} cannot be started from {path.parent} ({error.strerror}): set "
            "SHUNTER_HOME to another folder."
        ) from error
    return daemon, process


def stop(daemon: Daemon, patience_seconds: float = 20.0) -> None:
    """Stop the service and the processes of its group; after `patience_seconds` by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if daemon.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, number)
        deadline = time.monotonic() + patience_seconds
        while daemon.is_alive and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    path_of(daemon.name).unlink(missing_ok=True)


@dataclass(frozen=True)
class IdleServer:
    """Server that this process uses; the server may not answer yet, and may end once `lock` is closed."""

    daemon: Daemon
    lock: IO[bytes]


def may_idle() -> bool:
    """Return True if Prefect's server may outlive its command; False with `--debug`, for its log in the terminal."""
    return Settings().server_idle_minutes > 0 and os.environ.get("SHUNTER_DEBUG") != "1"


def use_idle_server(service: Service, login: str) -> IdleServer:
    """Return the idle Prefect server of this home and login; if there is none, start `service` as idle server.

    Servers of other versions, settings or resource limits are not used, and are stopped unless a command uses them.

    Raises:
        OSError: The files of the server cannot be written.
        ShunterError: The server cannot be started.
    """
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    own = {name: value for name, value in os.environ.items() if name.startswith("PREFECT_")}
    own = {name: value for name, value in own.items() if not name.endswith(("API_URL", "AUTH_STRING"))}
    versions = [version("prefect"), version("shunter"), sys.executable, PROGRAM.read_text()]
    text = json.dumps([versions, own, login, limits], sort_keys=True)
    name = f"{IDLE}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    make_private(Settings().services_directory)
    with FileLock(_lock_file(IDLE)):
        lock = _lock_file(name).open("ab")
        fcntl.flock(lock, fcntl.LOCK_SH)  # waits while a server is ending
        daemon = find(name)
        if daemon is None:
            _stop_idle(except_for=name)
            ends = (str(_lock_file(name)), str(path_of(name)), f"{60 * Settings().server_idle_minutes:g}")
            daemon, _ = start(replace(service, name=name, command=(*service.command, *ends)))
    return IdleServer(daemon, lock)


def idle_servers() -> list[Daemon]:
    """Return all running idle servers of this home, including those that a command uses."""
    records = sorted(Settings().services_directory.glob(f"{IDLE}-*.json"))
    return [daemon for record in records if (daemon := find(record.stem)) is not None]


def stop_idle_servers() -> int:
    """Stop the idle servers of this home, except those that a command uses; return the number of stopped servers."""
    if not any(Settings().services_directory.glob(f"{IDLE}-*.json")):
        return 0
    with FileLock(_lock_file(IDLE)):
        return _stop_idle()


def _stop_idle(except_for: str = "") -> int:
    stopped = 0
    for record in Settings().services_directory.glob(f"{IDLE}-*.json"):
        daemon = None if record.stem == except_for else find(record.stem)
        with _lock_file(record.stem).open("ab") as lock, contextlib.suppress(BlockingIOError):
            if daemon is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stop(daemon)
                stopped += 1
    return stopped


def _lock_file(name: str) -> Path:
    return Settings().services_directory / f"{name}.lock"
