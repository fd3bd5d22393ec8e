"""Identifier of this machine; unlike `host_fingerprint`, it differs between machines of the same kind.

Outside containers the identifier is made of the installation's id (`man machine-id`) and the addresses of the built-in
network cards, because images are copied with their machine-id. A container has the machine-id of its image, or none,
and its network cards last only as long as the container. There the board's number is used, which all containers of a
machine share; without it the serial numbers of the disks, else the id of the current boot. Copies of a virtual machine
that share all of these numbers, and have no board, cannot be distinguished.

Only a keyed hash is kept, as systemd requires of programs that use a machine-id.
"""

import hashlib
import os
import socket
from pathlib import Path

from shunter.hardware.devices.cgroup import kernel_text

PRODUCT = b"shunter machine"
# Placeholders that vendors write instead of a serial number; many thousands of machines share them.
PLACEHOLDERS = {"", "none", "default string", "to be filled by o.e.m.", "not specified", "system serial number"}
CONTAINER_MARKS = (".dockerenv", "run/.containerenv")
CONTAINER_WORDS = ("docker", "kubepods", "containerd", "lxc", "libpod")
ETHERNET = "1"


def machine_id(root: Path = Path("/")) -> str:
    """Return 16 hexadecimal digits that identify this machine permanently; the hash does not reveal the ids behind it.

    Args:
        root: Root of the file system; tests point it at a copy.
    """
    facts = _of_a_container(root) if is_container(root) else _of_an_installation(root)
    return hashlib.blake2b("\n".join(facts).encode(), key=PRODUCT, digest_size=8).hexdigest()


def is_container(root: Path = Path("/")) -> bool:
    """Return True if this process sees the file system of a container image instead of the machine's.

    Args:
        root: Root of the file system; tests point it at a copy.
    """
    if any((root / mark).exists() for mark in CONTAINER_MARKS):
        return True
    if root == Path("/") and "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    return any(word in kernel_text(root / "proc/1/cgroup") for word in CONTAINER_WORDS)


def _of_an_installation(root: Path) -> list[str]:
    """Return the installation's id and network card addresses; the host name if there are neither."""
    addresses = []
    for card in root.glob("sys/class/net/*"):
        device = card / "device"
        # The addresses of cards that are not built in can change.
        is_built_in = device.exists() and "/usb" not in str(device.resolve()) and not (card / "wireless").exists()
        if is_built_in and kernel_text(card / "type") == ETHERNET:
            addresses.append(_number(card / "address"))
    found = [fact for fact in (_number(root / "etc/machine-id"), *sorted(addresses)) if fact]
    return ["installation", *found] if found else ["name", socket.gethostname()]


def _of_a_container(root: Path) -> list[str]:
    """Return the first readable identifier that all containers of a machine share."""
    boards = [_number(root / "sys/class/dmi/id" / name) for name in ("product_uuid", "board_serial")]
    if any(boards):
        return ["board", *boards]
    disks = sorted(filter(None, map(_number, root.glob("sys/class/nvme/nvme*/serial"))))
    if disks:
        return ["disks", *disks]
    boot = _number(root / "proc/sys/kernel/random/boot_id")
    return ["boot", boot] if boot else ["name", socket.gethostname()]


def _number(path: Path) -> str:
    """Return the file's content; empty if the file is unreadable or holds a placeholder or only zeros and Fs."""
    text = kernel_text(path).lower()
    return "" if text in PLACEHOLDERS or not text.strip("0f-:. ") else text
