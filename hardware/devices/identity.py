"""Which machine this is, where `host_fingerprint` says what kind it is of: equal machines differ here.

What identifies a machine to everybody on it is the id of its installation (`man machine-id`) together with the
addresses of its built-in network cards, for images are copied with their machine-id. A container has the machine-id of
its image, or none, and cards of its own for as long as it lives; there the board's number counts, which the containers
of a machine share, else the numbers of its disks, else its present boot. Copies of a virtual machine that share all of
these, and have no board, cannot be told apart.

Only a keyed hash is kept, as systemd asks of whoever uses a machine-id.
"""

import hashlib
import os
import socket
from pathlib import Path

PRODUCT = b"shunter machine"
# What makers write where a number was to be: one machine of many thousands.
PLACEHOLDERS = {"", "none", "default string", "to be filled by o.e.m.", "not specified", "system serial number"}
CONTAINER_MARKS = (".dockerenv", "run/.containerenv")
CONTAINER_WORDS = ("docker", "kubepods", "containerd", "lxc", "libpod")
ETHERNET = "1"


def machine_id(root: Path = Path("/")) -> str:
    """Sixteen hexadecimal digits that stay with this machine, whatever kind it is of; nothing can be read from them.

    Args:
        root: Root of the file system; tests point it at a copy.
    """
    facts = _of_a_container(root) if is_container(root) else _of_an_installation(root)
    return hashlib.blake2b("\n".join(facts).encode(), key=PRODUCT, digest_size=8).hexdigest()


def is_container(root: Path = Path("/")) -> bool:
    """Whether this process sees the file system of an image instead of the machine's.

    Args:
        root: Root of the file system; tests point it at a copy.
    """
    if any((root / mark).exists() for mark in CONTAINER_MARKS):
        return True
    if root == Path("/") and "KUBERNETES_SERVICE_HOST" in os.environ:
        return True
    return any(word in _text(root / "proc/1/cgroup") for word in CONTAINER_WORDS)


def _of_an_installation(root: Path) -> list[str]:
    """The id of the installation with its network cards; the machine's name where there is neither."""
    facts = [_number(root / "etc/machine-id"), *_card_addresses(root)]
    found = [fact for fact in facts if fact]
    return ["installation", *found] if found else ["name", socket.gethostname()]


def _of_a_container(root: Path) -> list[str]:
    """The first that can be read of what all containers of a machine see alike."""
    boards = [_number(root / "sys/class/dmi/id" / name) for name in ("product_uuid", "board_serial")]
    if any(boards):
        return ["board", *boards]
    disks = sorted(filter(None, map(_number, root.glob("sys/class/nvme/nvme*/serial"))))
    if disks:
        return ["disks", *disks]
    boot = _number(root / "proc/sys/kernel/random/boot_id")
    return ["boot", boot] if boot else ["name", socket.gethostname()]


def _card_addresses(root: Path) -> list[str]:
    """Hardware addresses of Ethernet cards on the board: those of bridges, containers, wireless and USB change."""
    addresses = []
    for card in root.glob("sys/class/net/*"):
        device = card / "device"
        is_built_in = device.exists() and "/usb" not in str(device.resolve()) and not (card / "wireless").exists()
        if is_built_in and _text(card / "type") == ETHERNET:
            addresses.append(_number(card / "address"))
    return sorted(addresses)


def _number(path: Path) -> str:
    """What the file holds, without what says nothing; empty where it cannot be read."""
    text = _text(path).lower()
    return "" if text in PLACEHOLDERS or not text.strip("0f-:. ") else text


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
