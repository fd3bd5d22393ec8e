"""Where a process and all that it has started take connections, and which of these addresses others reach."""

import ipaddress
from collections.abc import Iterable
from contextlib import suppress

import psutil


def listening(process: psutil.Process) -> set[str]:
    """Addresses on which the process, or one that descends from it, waits for connections."""
    found = set()
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            sockets = each.net_connections("inet")
            found |= {at.laddr.ip for at in sockets if at.status == psutil.CONN_LISTEN}
    return found


def public(addresses: Iterable[str]) -> set[str]:
    """Those that other machines reach."""
    return {address for address in addresses if not ipaddress.ip_address(address).is_loopback}
