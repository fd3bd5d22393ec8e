"""Proxy settings of the environment: proxies are for other machines, never for the servers of this machine."""

import os
from collections.abc import MutableMapping

from shunter.settings import Settings

LOOPBACKS = ("127.0.0.1", "localhost", "::1")
PROXIES = frozenset(f"{scheme}_proxy" for scheme in ("all", "http", "https", "ws", "wss"))


def keep_loopback_direct(variables: MutableMapping[str, str] = os.environ) -> None:
    """Let every library, also in child processes, connect to the servers of this machine without a proxy."""
    if not any(name.lower() in PROXIES and value for name, value in variables.items()):
        return
    given = variables.get("no_proxy") or variables.get("NO_PROXY") or ""
    listed = [host.strip() for host in given.split(",") if host.strip()]
    hosts = dict.fromkeys((*listed, *LOOPBACKS, Settings().host))
    variables["no_proxy"] = variables["NO_PROXY"] = ",".join(hosts)
