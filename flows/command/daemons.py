"""Background services that outlive the command that started them, recorded in files for later commands."""

import contextlib
import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

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


class Daemon(BaseModel):
    """Service that was started in the background."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int = Field(description="Of the process, which leads a group of its own.")
    mark: str = Field(description="The boot and the tick at which it began: another process may get the same pid.")
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

    @property
    def is_alive(self) -> bool:
        """Return True if the process still runs; another process with the same pid does not count."""
        return process_mark(self.pid) == self.mark


def find(name: str) -> Daemon | None:
    """Return the service of a name if it runs; else remove its record and return None."""
    path = _path(name)
    daemon = read_or_quarantine(path, Daemon.model_validate_json)
    if daemon is None or daemon.is_alive:
        return daemon
    path.unlink(missing_ok=True)
    return None


def log_of(name: str) -> Path:
    """Return the log file of the service of a name."""
    return _path(name).with_suffix(".log")


def start(service: Service) -> tuple[Daemon, "subprocess.Popen[bytes]"]:
    """Start a service in the background; it may not be ready yet.

    Raises:
        RequestError: The port of the service is taken.
        ShunterError: The service ended at once, or its files cannot be written.
    """
    check_port(service)
    path = _path(service.name)
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
                start_new_session=True,  # neither Ctrl-C nor SIGHUP reaches the service
            )
        mark = process_mark(process.pid)
        if mark is None:
            raise ShunterError(f"{service.name} ended while starting: read {log} to see its log.")
        daemon = Daemon(name=service.name, pid=process.pid, mark=mark, url=service.url, log=log)
        write_checked(path, daemon.model_dump_json())
    except OSError as error:
        raise ShunterError(
            f"{service.name} cannot be started from {path.parent} ({error.strerror}): set SHUNTER_HOME to another."
        ) from error
    return daemon, process


def stop(daemon: Daemon, patience_seconds: float = 20.0) -> None:
    """Stop the service and the processes of its group, by SIGKILL after `patience_seconds`."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if daemon.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, number)
        deadline = time.monotonic() + patience_seconds
        while daemon.is_alive and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    _path(daemon.name).unlink(missing_ok=True)


def _path(name: str) -> Path:
    return Settings().services_directory / f"{name.lower()}.json"
