"""Prefect server of a command, which starts during the command's imports and ends after the command or when idle.

Prefect could start a server itself, but would first import the complete server in this process, and then wait.

A watcher restarts the server on the same port with the same database if it ends while a flow needs it. Prefect's
clients retry a call for a minute, so most runs continue unchanged. A client that has not reached the server before
fails at once; its flow is then run again and resumes.
"""

import atexit
import base64
import contextlib
import os
import queue
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from shunter.errors import ShunterError
from shunter.flows.command.daemons import Daemon, find, may_idle, use_idle_server
from shunter.flows.command.prefect_settings import has_profile_setting
from shunter.flows.command.services import ASK_SECONDS, LOOPBACK, Service, free_port, wait_until_ready
from shunter.flows.command.terminal import say
from shunter.hardware.devices.process_mark import process_mark
from shunter.python_processes import start_python
from shunter.secrets import without_secrets
from shunter.settings import Settings

if TYPE_CHECKING:
    import psutil

ANSWER_SECONDS = 20.0  # longest wait for an answer of a server that this command has not started
STOP_SECONDS = 5.0
OWNER = "SHUNTER_COMMAND"
PATIENCE_SECONDS = 5.0


@contextmanager
def server_starting() -> "Iterator[TemporaryServer | None]":
    """Find or start the server during the block; at the end of the block, wait until the server answers.

    The idle server of the home is used (`shunter.flows.command.daemons`), unless `SHUNTER_SERVER_IDLE_MINUTES` is
    0.

    Yields the server; None if another server is used. PREFECT_API_URL is set to the server's address, so Prefect must
    not be imported before. No server is started if that variable is set already or a profile of the home names a
    server.

    The server has a separate session, because a terminal sends Ctrl-C and SIGHUP to all processes of its session. The
    server must outlive this process long enough to record that the run was interrupted. A temporary server is stopped
    when this process ends, and stops by itself if this process is killed.

    Raises:
        ShunterError: The server did not start, or the configured one does not answer.
    """
    if url := _named_server():
        _check_answers(url)
        yield None
        return
    mark_children()
    end_orphans()
    server = _idle_server() if may_idle() else None
    if server is None:
        server = TemporaryServer(_service(free_port()))
        server.start()
    threading.Thread(target=server.warm_up, name="server-warm-up", daemon=True).start()
    atexit.register(server.stop)  # runs after the exit handler in which Prefect sends its last log lines
    os.environ["PREFECT_API_URL"] = server.api_url
    try:
        yield server
        server.wait_until_ready()
    except BaseException:
        server.stop()
        raise


class TemporaryServer:
    """Server that a command starts, possibly more than once, and stops.

    Attributes:
        service: Service that is started.
        process: Current or last process of the service.
        has_answered: Whether the server has answered `warm_up`.
    """

    process: "subprocess.Popen[bytes]"
    ended = "Prefect's temporary server has ended: it is restarted, and the run continues."

    def __init__(self, service: Service) -> None:
        self.service = service
        self.has_answered = False

    @property
    def api_url(self) -> str:
        """Address of the server's API for Prefect's clients."""
        return f"{self.service.url}/api"

    @property
    def has_started(self) -> bool:
        """Return True if this command has started a server."""
        return hasattr(self, "process")

    @property
    def is_running(self) -> bool:
        """Return True if the server process runs."""
        return self.process.poll() is None

    def start(self) -> None:
        """Start the process, which ends when the other end of its standard input is closed."""
        output = None if os.environ.get("SHUNTER_DEBUG") == "1" else subprocess.DEVNULL
        environment = {**os.environ, **self.service.environment}
        environment.pop("PREFECT_API_URL", None)  # the server must not connect to another server
        self.process = start_python(
            *self.service.command,
            environment=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Wait until the server answers; raise ServerTimeoutError if it does not, ShunterError if it ended."""
        wait_until_ready(self.service, self.process)

    def warm_up(self) -> None:
        """Send a request as soon as the server answers, because preparing the first answer takes half a second."""
        login = os.environ.get("PREFECT_API_AUTH_STRING", "")
        headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
        request = urllib.request.Request(f"{self.api_url}/admin/version", headers=headers)
        while self.is_running:
            try:
                urllib.request.urlopen(request, timeout=ANSWER_SECONDS).close()
                self.has_answered = True
                return
            except urllib.error.HTTPError:  # the server answers, even if with an error
                self.has_answered = True
                return
            except OSError:
                time.sleep(ASK_SECONDS)

    def stop(self) -> None:
        """Stop the server after its pending writes; a second call does nothing."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
            return
        self.process.kill()
        self.process.wait()


class SharedServer(TemporaryServer):
    """Server of `shunter up`, which several commands share; if it ends, a command starts a new server on its port.

    `shunter down` stops that server even while a training run in a terminal uses it. The successor has the same
    database and ends with its command; another command that still needs a server starts the next one.

    Args:
        daemon: Running server of `shunter up`.
    """

    ended = "Prefect's server has ended: a temporary one replaces it, and the run continues."

    def __init__(self, daemon: Daemon) -> None:
        login = {"PREFECT_SERVER_API_AUTH_STRING": os.environ.get("PREFECT_API_AUTH_STRING", "")}
        super().__init__(_service(daemon.port, str(urlsplit(daemon.url).hostname), login))
        self._daemon = daemon

    @property
    def is_running(self) -> bool:
        """Return True if the daemon runs, or another process listens on its port."""
        return self._daemon.is_alive or (self.has_started and super().is_running) or self._is_listening()

    def wait_until_ready(self) -> None:
        """Wait until the server answers; raise ServerTimeoutError if it does not, ShunterError if it ended."""
        wait_until_ready(self.service, self._daemon, f"read {self._daemon.log}")

    def start(self) -> None:
        """Start a new server on the same port, which ends with this process."""
        mark_children()
        super().start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop the server that this command has started in place of the shared one, if any."""
        if self.has_started:
            super().stop()

    def _is_listening(self) -> bool:
        try:
            socket.create_connection((self.service.host, self.service.port), timeout=ANSWER_SECONDS).close()
        except OSError:
            return False
        return True


def _idle_server() -> SharedServer | None:
    """Return the home's idle server, started if absent and perhaps not ready; None if the start fails."""
    login = os.environ.get("PREFECT_API_AUTH_STRING", "")
    unmarked = {OWNER: ""}  # the server belongs to no command
    try:
        used = use_idle_server(_service(free_port(), environment=unmarked), login)
    except (OSError, ShunterError):
        return None
    atexit.register(used.lock.close)  # the server cannot end before the lock is closed
    return SharedServer(used.daemon)


def shared_server() -> SharedServer | None:
    """Return the server of `shunter up` if this process uses it, otherwise None."""
    daemon = find("Prefect")
    if daemon is None or os.environ.get("PREFECT_API_URL") != f"{daemon.url}/api":
        return None
    return SharedServer(daemon)


def abandon() -> None:
    """Drop the queued log lines and events of Prefect's clients for a lost server, so that the process ends at once."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        for instance in tuple(worker._instances.values()):
            with contextlib.suppress(queue.Empty):
                while not instance._stopped:  # the queue of a stopped worker contains only its end mark
                    instance._queue.get_nowait()


def hand_over() -> None:
    """Send the queued log lines and events of Prefect's clients; wait at most `STOP_SECONDS` for each queue."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=STOP_SECONDS)


def _named_server() -> str | None:
    """Return the address of a server that the user has configured; import Prefect only if its settings may name one."""
    if url := os.environ.get("PREFECT_API_URL"):
        return url
    if not os.environ.get("PREFECT_PROFILE") and not has_profile_setting("PREFECT_"):
        return None
    from prefect.settings import get_current_settings

    return get_current_settings().api.url


def _check_answers(url: str) -> None:
    """Raise if a server does not answer, because Prefect's client would retry for long."""
    import httpx

    try:
        httpx.get(f"{url.rstrip('/')}/health", timeout=ANSWER_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ShunterError(
            f"Prefect's server {without_secrets(url)} does not answer: start it, or leave out "
            "PREFECT_API_URL to use a temporary server."
        ) from error


def _service(port: int, host: str = LOOPBACK, environment: Mapping[str, str] | None = None) -> Service:
    """Return the service of Prefect's temporary server, as Prefect's `SubprocessASGIServer` (3.8) would start it."""
    program = Path(__file__).with_name("temporary_server_process.py")
    return Service(
        name="Prefect's temporary server",
        command=(str(program), host, str(port)),
        environment={"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
        | dict(environment or {}),
        port=port,
        health_path="/api/health",
        host=host,
    )


def mark_children() -> None:
    """Mark all future child processes as belonging to this command."""
    os.environ[OWNER] = f"{os.getpid()} {process_mark(os.getpid())} {Settings().home.resolve()}"


def end_orphans() -> int:
    """Stop processes of this home whose command has ended, and return their number."""
    import psutil

    orphans = [process for process in psutil.process_iter() if _is_orphan(process)]
    for process in orphans:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    for process in psutil.wait_procs(orphans, PATIENCE_SECONDS)[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return len(orphans)


def _is_orphan(process: "psutil.Process") -> bool:
    import psutil

    try:
        if process.uids().effective != os.geteuid():
            return False
        owner = process.environ().get(OWNER, "").split(" ", maxsplit=2)
    except psutil.Error:
        return False
    if len(owner) < 3 or owner[2] != str(Settings().home.resolve()):
        return False
    return process_mark(int(owner[0])) != owner[1]


POLL_SECONDS = 0.5
MOST_STARTS = 5  # largest number of restarts; a server that ends more often has a permanent fault
BACK_SECONDS = 120.0  # longest wait for the server's start on a busy machine


class ServerWatch:
    """Watcher of the temporary server for the duration of a `with` block.

    Args:
        server: Server that this command has started or shares with other commands; None for a server that the user has
            configured.
    """

    def __init__(self, server: TemporaryServer | None) -> None:
        self._server, self._starts, self._noticed = server, 0, 0
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="server-watch", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread that watches the server."""
        if self._server is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the thread, so that the server is no longer restarted."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def is_back(self) -> bool:
        """Return True if the server was restarted since the last call and answers again; wait until it answers."""
        self._revive()
        if self._noticed == self._starts:
            return False
        self._noticed = self._starts
        deadline = time.monotonic() + BACK_SECONDS
        while time.monotonic() < deadline:
            if self._answers():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _watch(self) -> None:
        while not self._is_over.wait(POLL_SECONDS):
            self._revive()

    def _revive(self) -> None:
        """Restart the server if its process has ended."""
        with self._lock:
            if self._server is None or self._server.is_running or self._starts == MOST_STARTS:
                return
            self._starts += 1
            say(self._server.ended)
            self._server.start()

    def _answers(self) -> bool:
        import httpx

        assert self._server is not None
        try:
            return httpx.get(f"{self._server.api_url}/health", timeout=5.0).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False
