"""Ways in which a file comes to harm: what a disk, a copy that broke off or a hand leaves."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

Damage = Callable[[Path], None]


def garbage(path: Path) -> None:
    """Replace the content by as many random bytes."""
    path.write_bytes(Random(0).randbytes(max(path.stat().st_size, 16)))


def emptied(path: Path) -> None:
    """Leave a file without content."""
    path.write_bytes(b"")


def cut(path: Path) -> None:
    """Leave the first half."""
    os.truncate(path, path.stat().st_size // 2)


def flipped(path: Path) -> None:
    """Invert the bits of four bytes in the middle."""
    flip_bytes(path, path.stat().st_size // 2, 4)


def flip_bytes(path: Path, first: int, count: int) -> None:
    """Invert the bits of some neighbouring bytes; the time of change stays, as when a disk errs."""
    stamp = path.stat()
    content = bytearray(path.read_bytes())
    content[first : first + count] = bytes(byte ^ 0xFF for byte in content[first : first + count])
    path.write_bytes(content)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


DAMAGES: tuple[Damage, ...] = (garbage, emptied, cut, flipped)
