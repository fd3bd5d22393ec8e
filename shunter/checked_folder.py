"""Folders of large files with a checksum for each block, which is verified when a process first reads the block.

`checksums.json` of a folder holds the size and the CRC-32 of every block of each file. It is a checked file itself
(`shunter.checked_json`). A file that it does not name, as in a folder of a former version, is read unverified.
"""

import errno
import json
import os
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.checked_json import json_object, read_checked, write_checked
from shunter.errors import DamagedFileError

MANIFEST = "checksums.json"
BLOCK_BYTES = 1 << 20  # small enough for random rows, large enough that a call of zlib costs nothing
_DIGITS = 8  # of a CRC-32

Stamp = tuple[int, int, int]


class CheckedFile:
    """File of a checked folder, with a record of the blocks that this process has verified.

    Args:
        path: The file.
        size: Its bytes when the folder was sealed.
        sums: CRC-32 of each block.
        inode: Number of the file on its file system.
    """

    def __init__(self, path: Path, size: int, sums: NDArray[np.uint32], inode: int) -> None:
        self.path = path
        self.is_verified = False
        self._size, self._sums, self._inode = size, sums, inode
        self._done = np.zeros(len(sums), bool)

    def verify(self) -> None:
        """Verify the checksums of all blocks of the file.

        Raises:
            DamagedFileError: The file is damaged.
            OSError: The file cannot be read.
        """
        self.verify_blocks(np.arange(len(self._sums)))

    def verify_bytes(self, first: int, end: int) -> None:
        """Verify the blocks that hold the bytes from `first` up to `end`; raises as `verify`."""
        self.verify_blocks(np.arange(first // BLOCK_BYTES, -(-end // BLOCK_BYTES)))

    def verify_blocks(self, numbers: NDArray[np.int64]) -> None:
        """Verify the given blocks, except those that were verified before; raises as `verify`."""
        if self.is_verified:
            return
        found = self.path.stat()
        if found.st_ino != self._inode:  # what is mapped is the former file, whose blocks are not those of this one
            raise OSError(errno.ESTALE, "it was replaced while it was read", str(self.path))
        if found.st_size != self._size:
            raise self._damaged(f"the file has {found.st_size:,} bytes instead of {self._size:,}")
        pending = np.unique(numbers[~self._done[numbers]])
        if len(pending):
            with self.path.open("rb") as file:
                for number in pending.tolist():
                    block = os.pread(file.fileno(), BLOCK_BYTES, number * BLOCK_BYTES)
                    if zlib.crc32(block) != self._sums[number]:
                        raise self._damaged(
                            f"block {number} of {len(self._sums)} of the file does not match its checksum"
                        )
            self._done[pending] = True
        self.is_verified = bool(self._done.all())

    def _damaged(self, reason: str) -> DamagedFileError:
        return DamagedFileError(self.path, reason)


def seal_folder(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write the checksums of a complete folder, for the files `names` relative to the folder; None seals all files.

    Raises:
        OSError: A file cannot be read, or the checksums cannot be written.
    """
    if names is None:
        files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
        names = [path.relative_to(folder).as_posix() for path in files]
    chosen = sorted(names)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # zlib works without Python's lock
        entries = dict(zip(chosen, pool.map(lambda name: _entry(folder / name), chosen), strict=True))
    write_checked(folder / MANIFEST, json.dumps({"block_bytes": BLOCK_BYTES, "files": entries}))


def is_sealed(folder: Path) -> bool:
    """Return True if the folder has checksums."""
    return (folder / MANIFEST).exists()


def checked_file(path: Path) -> CheckedFile | None:
    """Return the checksums of a file, from the manifest of its folder or the folder above; None if it has none.

    Raises:
        DamagedFileError: The manifest is damaged.
        OSError: The file is missing.
    """
    path = path.resolve()  # the target of a link is in a folder with its own checksums
    for folder in (path.parent, path.parent.parent):
        manifest = folder / MANIFEST
        if manifest.exists():
            return _checked_file(path, path.relative_to(folder).as_posix(), manifest, _stamp(path), _stamp(manifest))
    return None


def verify_file(path: Path) -> None:
    """Verify a whole file, once per process; do nothing for a file without checksums.

    Raises:
        DamagedFileError: The file is damaged.
        OSError: The file cannot be read.
    """
    if (found := checked_file(path)) is not None:
        found.verify()


def verify_folder(folder: Path, *, largest_bytes: int | None = None) -> None:
    """Verify the files of a sealed folder; above `largest_bytes` only the size. No file may be missing.

    Raises:
        DamagedFileError: A file is damaged or missing.
        OSError: A file cannot be read.
    """
    for name in _files(folder / MANIFEST, _stamp(folder / MANIFEST)):
        path = folder / name
        if not path.exists():
            raise DamagedFileError(path, "it is missing")
        is_large = largest_bytes is not None and path.stat().st_size > largest_bytes
        if (found := checked_file(path)) is not None:
            found.verify_blocks(np.zeros(0, np.int64)) if is_large else found.verify()


@lru_cache(maxsize=4096)
def _checked_file(path: Path, name: str, manifest: Path, of_file: Stamp, of_manifest: Stamp) -> CheckedFile | None:
    """Return the `CheckedFile` of a file; a changed time stamp gives a new object, which is verified again."""
    entry = _files(manifest, of_manifest).get(name)
    if entry is None:
        return None
    size, digits = entry
    sums = [int(digits[at : at + _DIGITS], 16) for at in range(0, len(digits), _DIGITS)]
    return CheckedFile(path, size, np.array(sums, np.uint32), of_file[0])


@lru_cache(maxsize=64)
def _files(manifest: Path, stamp: Stamp) -> dict[str, tuple[int, str]]:
    def parse(text: bytes) -> dict[str, tuple[int, str]]:
        values = json_object(text)
        if values["block_bytes"] != BLOCK_BYTES:
            raise ValueError("the checksums of the file are for blocks of another size")
        return {str(name): (int(size), str(digits)) for name, (size, digits) in values["files"].items()}

    return read_checked(manifest, parse)


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_ctime_ns  # unlike the time of change, nobody sets the latter


def _entry(path: Path) -> tuple[int, str]:
    size, sums = 0, []
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            size += len(block)
            sums.append(f"{zlib.crc32(block):08x}")
    return size, "".join(sums)
