"""Addresses of the servers: loopback by default, or an address that other machines can reach with a password."""

import ipaddress
from dataclasses import dataclass

from shunter.errors import RequestError
from shunter.settings import Settings

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Exposure:
    """Address of a server, and the names under which clients reach it.

    Attributes:
        host: Address to listen on.
        names: Names by which browsers reach the server.
    """

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
