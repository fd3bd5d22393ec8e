"""Servers that run in separate processes: addresses, ports, and waiting until a server is ready.

A server listens on loopback by default, or at an address that other machines can reach with a password.
"""

import ipaddress
import socket
import time
import urllib.request
from dataclasses import dataclass
from typing import Any

from shunter.errors import RequestError, ServerTimeoutError, ShunterError
from shunter.settings import Settings

LOOPBACK = "127.0.0.1"
PATIENCE_SECONDS = 300  # longest wait for a server that starts on a busy machine
ASK_SECONDS = 0.05  # time between two checks whether a service answers


@dataclass(frozen=True, kw_only=True)
class Service:
    """Web server that runs in a separate process.

    Attributes:
        name: Display name of the service.
        command: Arguments of Python that start the server.
        environment: Environment variables, in addition to those of this process.
        port: Port on which the server listens.
        health_path: Path that answers 200 when the server is ready.
        host: Address at which this machine reaches the server.
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    port: int
    health_path: str
    host: str = LOOPBACK

    @property
    def url(self) -> str:
        """Address of the service, to open in a browser of this machine."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True)
class Exposure:
    """Address of a server, and the names under which clients reach it."""

    host: str
    names: tuple[str, ...]

    @property
    def is_public(self) -> bool:
        """Return True if other machines can reach the server."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    @property
    def reached_at(self) -> str:
        """Address at which this machine reaches the server."""
        return LOOPBACK if self.host in {"0.0.0.0", "::"} else self.host

    @property
    def browser_name(self) -> str:
        """Name by which a browser reaches the server: the first of `names`."""
        return self.names[0] if self.names else self.reached_at

    def hosts(self, port: int) -> str:
        """Return the allowed host names of requests, separated by commas."""
        return ",".join(
            f"{name}:{port}" for name in dict.fromkeys(("localhost", self.reached_at, LOOPBACK, *self.names))
        )

    def origins(self, port: int) -> str:
        """Return the origins of pages that may send requests, separated by commas."""
        return ",".join(f"http://{host}" for host in self.hosts(port).split(","))


def exposure() -> Exposure:
    """Return the exposure by `SHUNTER_HOST` and `SHUNTER_HOST_NAMES`; loopback by default.

    Raises:
        RequestError: The host is public, but no names are set.
    """
    settings = Settings()
    names = tuple(name.strip() for name in (settings.host_names or "").split(",") if name.strip())
    found = Exposure(settings.host, names)
    if found.is_public and not names:
        raise RequestError(
            f"SHUNTER_HOST={settings.host} makes the servers reachable from other machines, but they "
            "refuse unknown host names: set SHUNTER_HOST_NAMES to the names that browsers use, separated "
            "by commas."
        )
    return found


def free_port() -> int:
    """Return a free port of loopback."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def check_port(service: Service) -> None:
    """Raise if the service cannot listen on its port.

    Raises:
        RequestError: The port is in use.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((service.host, service.port))
        except OSError:
            raise RequestError(
                f"Port {service.port} of {service.name} is in use: stop the program that listens there, or "
                f"choose another port with --{service.name.lower()}-port."
            ) from None


def wait_until_ready(service: Service, process: Any, log: str = "run again with --debug") -> None:
    """Wait until the service answers.

    Args:
        service: Service to wait for.
        process: Process of the service, with a method `poll` like `subprocess.Popen`.
        log: Advice for error messages on how to see the service's log.

    Raises:
        ShunterError: The service ended.
        ServerTimeoutError: The service does not answer in time.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ShunterError(f"The service {service.name} ended while starting: {log} to see its log.")
        try:
            with direct.open(service.url + service.health_path, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(ASK_SECONDS)
    raise ServerTimeoutError(service.name, service.url, PATIENCE_SECONDS, log)
