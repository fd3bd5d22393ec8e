"""Where a process and all that it has started take connections, and which of these addresses others reach."""

import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import suppress

import psutil


def listening(process: psutil.Process) -> set[str]:
    """Addresses on which the process, or one that descends from it, waits for connections."""
    return {address for address, _ in listening_sockets(process)}


def listening_sockets(process: psutil.Process) -> set[tuple[str, int]]:
    """Address and port of each."""
    found = set()
    for each in [process, *_descendants(process)]:
        with suppress(psutil.NoSuchProcess):
            sockets = each.net_connections("inet")
            found |= {(at.laddr.ip, at.laddr.port) for at in sockets if at.status == psutil.CONN_LISTEN}
    return found


def started_with(words: str, by: psutil.Process) -> Iterator[psutil.Process]:
    """What a process has started whose command has these words; one that ends while it is looked at is passed over."""
    for process in _descendants(by):
        with suppress(psutil.NoSuchProcess):
            if words in " ".join(process.cmdline()):
                yield process


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def public(addresses: Iterable[str]) -> set[str]:
    """Those that other machines reach."""
    return {address for address in addresses if not _is_loopback(address)}


def _is_loopback(address: str) -> bool:
    """An address of IPv4 may be written as one of IPv6."""
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
