"""Where the servers listen: on loopback, or, when told to, where others reach them, never without a password."""

import ipaddress
from dataclasses import dataclass

from shunter.errors import RequestError
from shunter.settings import Settings

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Exposure:
    """Where a server listens, and who may reach it.

    Attributes:
        host: Address to listen on.
        names: Names by which browsers reach it.
    """

    host: str
    names: tuple[str, ...]

    @property
    def is_public(self) -> bool:
        """Whether others than this machine can reach it."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    @property
    def reached_at(self) -> str:
        """Address at which this machine reaches it."""
        return LOOPBACK if self.host in {"0.0.0.0", "::"} else self.host

    @property
    def browser_name(self) -> str:
        """By which a browser reaches it: the first of its names."""
        return self.names[0] if self.names else self.reached_at

    def hosts(self, port: int) -> str:
        """What requests may name as their host, with commas."""
        return ",".join(
            f"{name}:{port}" for name in dict.fromkeys(("localhost", self.reached_at, LOOPBACK, *self.names))
        )

    def origins(self, port: int) -> str:
        """Pages that may send requests, with commas."""
        return ",".join(f"http://{host}" for host in self.hosts(port).split(","))


def exposure() -> Exposure:
    """As `SHUNTER_HOST` and `SHUNTER_HOST_NAMES` say: loopback when they say nothing.

    Raises:
        RequestError: The host is public and nothing says by which names it is reached.
    """
    settings = Settings()
    names = tuple(name.strip() for name in (settings.host_names or "").split(",") if name.strip())
    found = Exposure(settings.host, names)
    if found.is_public and not names:
        raise RequestError(
            f"SHUNTER_HOST={settings.host} lets others reach the servers, which refuse requests to unknown names: set "
            "SHUNTER_HOST_NAMES to the names that browsers will use, with commas."
        )
    return found
