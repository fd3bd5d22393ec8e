"""The servers of this machine: how each is started, and how they are run until Ctrl-C."""

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shunter.errors import RequestError, ServerTimeoutError, ShunterError
from shunter.flows.command.exposure import LOOPBACK, check_prefect, exposure, mlflow_auth
from shunter.flows.command.passwords import prefect_login
from shunter.python_processes import start_python
from shunter.settings import Settings

PATIENCE_SECONDS = 300  # with a server that starts on a busy machine
ASK_SECONDS = 0.05  # between two questions whether a service answers
WORK_POOL = "shunter"
JOBS = "MLFLOW_SERVER_ENABLE_JOB_EXECUTION"
FLOW_RUN_SECONDS = 90 * 86_400  # after which Prefect forgets a run that is over; MLflow keeps what it came to


@dataclass(frozen=True, kw_only=True)
class Service:
    """A web server that runs as a process of its own.

    Attributes:
        name: Name that people know it by.
        command: Arguments of Python that start it.
        environment: Variables beyond those of this process.
        port: Port on which it listens.
        health_path: Path that answers 200 when the server is ready.
        host: Address at which this machine reaches it.
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    port: int
    health_path: str
    host: str = LOOPBACK

    @property
    def url(self) -> str:
        """Address to open in a browser of this machine."""
        return f"http://{self.host}:{self.port}"


def prefect_service(port: int) -> Service:
    """Prefect's server and UI over the database that `shunter train` writes; it answers to nobody without its password.

    Raises:
        RequestError: Others would reach it without a password that they have been given.
        ShunterError: The password cannot be kept.
    """
    where = exposure()
    check_prefect(where)
    url = f"http://{where.reached_at}:{port}/api"
    command = ("-m", "prefect", "server", "start", "--host", where.host, "--port", str(port))
    return Service(
        name="Prefect",
        command=command,
        environment={
            "PREFECT_UI_API_URL": f"http://{where.browser_name}:{port}/api",
            "PREFECT_API_URL": url,
            "PREFECT_SERVER_API_AUTH_STRING": prefect_login(),
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": where.origins(port),
            "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
            "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
            "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(FLOW_RUN_SECONDS),
        },
        port=port,
        health_path="/api/health",
        host=where.reached_at,
    )


def mlflow_service(port: int) -> Service:
    """MLflow's server and UI over the store that every run writes, with its host and origin checks on.

    Raises:
        RequestError: Others would reach it without a password.
        TrackingError: The store cannot be prepared.
    """
    from shunter.tracking.store import artifact_root, prepare_store, tracking_uri

    prepare_store()
    where = exposure()
    options, environment = mlflow_auth(where)
    command = (
        *("-m", "mlflow", "server", "--host", where.host, "--port", str(port), "--workers", "1"),
        *("--artifacts-destination", artifact_root()),
        *("--allowed-hosts", where.hosts(port), "--cors-allowed-origins", where.origins(port)),
        *("--x-frame-options", "SAMEORIGIN", *options),  # its own pages show reports in frames
    )
    return Service(
        name="MLflow",
        command=command,
        environment={
            **environment,
            # The address of the store may hold a password, which every user of the machine would see in a command.
            "MLFLOW_BACKEND_STORE_URI": tracking_uri(),
            # Its jobs judge texts and optimize prompts: eight processes that nothing here gives work to.
            JOBS: os.environ.get(JOBS, "false"),
        },
        port=port,
        health_path="/health",
        host=where.reached_at,
    )


def worker_service(prefect_url: str, port: int) -> Service:
    """Prefect's worker, which runs what is triggered in the UI or by a schedule, each run in a process of its own.

    Args:
        prefect_url: Address of the server that hands out the runs.
        port: Port of loopback on which it tells that it lives.
    """
    command = (
        *("-m", "prefect", "worker", "start", "--pool", WORK_POOL, "--type", "process"),
        *("--name", worker_name(), "--with-healthcheck"),
    )
    environment = {
        "PREFECT_API_URL": f"{prefect_url}/api",
        "PREFECT_API_AUTH_STRING": prefect_login(),
        "PREFECT_WORKER_WEBSERVER_HOST": LOOPBACK,
        "PREFECT_WORKER_WEBSERVER_PORT": str(port),
        "PREFECT_WORKER_QUERY_SECONDS": "5",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO",  # its log is a file, not the user's terminal
    }
    return Service(name="Worker", command=command, environment=environment, port=port, health_path="/health")


def worker_name() -> str:
    """Name of this home's worker on this machine, by which its runs are told from those of other workers.

    It stays the same through restarts, also of a container under another name.
    """
    from shunter.hardware.devices.identity import machine_id

    own = f"{machine_id()} {Settings().home.resolve()}"
    return f"{socket.gethostname()}-{hashlib.blake2b(own.encode(), digest_size=4).hexdigest()}"


def free_port() -> int:
    """A port of loopback on which nothing listens."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def serve(services: list[Service], on_ready: Callable[[Service], None]) -> None:
    """Start the services, report each when it answers, and wait; Ctrl-C or SIGTERM stops them all.

    Raises:
        RequestError: A port is taken.
        ShunterError: A service did not start or ended by itself.
    """
    for service in services:
        check_port(service)
    signal.signal(signal.SIGTERM, _interrupt)
    # Told to stop at any moment, also while they start, all are stopped and nothing is an error.
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        processes = [(service, stack.enter_context(running(service))) for service in services]
        for service, process in processes:
            wait_until_ready(service, process)
            on_ready(service)
        while all(process.poll() is None for _, process in processes):
            time.sleep(0.5)
        raise ShunterError("A server ended by itself: start again with --debug to see its log.")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def check_port(service: Service) -> None:
    """Make sure that the service can listen on its port.

    Raises:
        RequestError: Something else does.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((service.host, service.port))
        except OSError:
            raise RequestError(
                f"Port {service.port} for {service.name} is in use: stop what listens there, or choose another port "
                f"with --{service.name.lower()}-port."
            ) from None


@contextlib.contextmanager
def running(service: Service) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the service as a child process for the length of the block; it may not be ready yet."""
    show_log = os.environ.get("SHUNTER_DEBUG") == "1"
    process = start_python(
        *service.command,
        environment={**os.environ, **service.environment},
        stdout=None if show_log else subprocess.DEVNULL,
        stderr=None if show_log else subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches us first; we stop the children in order
    )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for number, patience_seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_seconds)
            return


def wait_until_ready(service: Service, process: "subprocess.Popen[bytes]", log: str = "run again with --debug") -> None:
    """Return when the service answers.

    Args:
        service: Service that is waited for.
        process: Its process.
        log: Advice on how to see its log.

    Raises:
        ShunterError: It ended.
        ServerTimeoutError: It does not answer in time.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ShunterError(f"{service.name} ended while starting: {log} to see its log.")
        try:
            with direct.open(service.url + service.health_path, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(ASK_SECONDS)
    raise ServerTimeoutError(service.name, service.url, PATIENCE_SECONDS, log)
