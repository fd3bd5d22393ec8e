"""A server that runs as a process of its own: its port, and how it is waited for."""

import socket
import subprocess
import time
import urllib.request
from dataclasses import dataclass

from shunter.errors import RequestError, ServerTimeoutError, ShunterError
from shunter.flows.command.exposure import LOOPBACK

PATIENCE_SECONDS = 300  # with a server that starts on a busy machine
ASK_SECONDS = 0.05  # between two questions whether a service answers


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


def free_port() -> int:
    """A port of loopback on which nothing listens."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


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
