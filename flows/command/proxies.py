"""Proxies of the environment: they are for other machines, never for the servers of this machine."""

import os
from collections.abc import MutableMapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from shunter.settings import Settings

LOOPBACKS = ("127.0.0.1", "localhost", "::1")
PROXIES = frozenset(f"{scheme}_proxy" for scheme in ("all", "http", "https", "ws", "wss"))
SOCKS_LIBRARY = "socksio"  # which httpx, and with it Prefect, needs for a SOCKS proxy


def keep_loopback_direct(variables: MutableMapping[str, str] = os.environ) -> list[str]:
    """Let every library, here and in child processes, reach the servers of this machine without a proxy.

    A SOCKS proxy is removed from the variables where its library is missing: httpx would fail with that proxy even for
    addresses that need no proxy.

    Returns:
        Names of the removed variables.
    """
    proxies = [name for name in variables if name.lower() in PROXIES and variables[name]]
    if not proxies:
        return []
    given = variables.get("no_proxy") or variables.get("NO_PROXY") or ""
    listed = [host.strip() for host in given.split(",") if host.strip()]
    hosts = dict.fromkeys((*listed, *LOOPBACKS, Settings().host))
    variables["no_proxy"] = variables["NO_PROXY"] = ",".join(hosts)
    unusable = [name for name in proxies if _is_socks(variables[name]) and find_spec(SOCKS_LIBRARY) is None]
    for name in unusable:
        del variables[name]
    return unusable


def _is_socks(address: str) -> bool:
    return urlsplit(address).scheme.startswith("socks")
