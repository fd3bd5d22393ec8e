"""Arrays of a data set, memory-mapped and verified block by block on first access, and arrays of results."""

import contextlib
import io
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shunter.checked_folder import BLOCK_BYTES, CheckedFile, checked_file, is_sealed
from shunter.errors import DamagedDataError, DamagedFileError, DataError
from shunter.files import open_regular, replace_file
from shunter.quarantine import quarantine

# An empty array cannot be mapped: its file ends after the header, which numpy pads to this.
NPY_HEADER_BYTES = 128
EAGER_BYTES = 16 << 20  # arrays up to this size are verified on opening: 7 ms at 2.4 GB/s
SUM_BYTES = 4
LARGEST_EXPANSION = 16  # largest accepted ratio of the arrays' bytes to the bytes of their .npz file
LEAST_NPZ_BYTES = 64 << 20  # size of arrays that is accepted from any .npz file

Array = NDArray[Any]


class LazyArray:
    """Large memory-mapped array that verifies the blocks of the rows that are read, each block once per process.

    Args:
        array: Mapped array; its first dimension is rows.
        header_bytes: Bytes of the file before the first row.
        file: Checksums of the file.
    """

    def __init__(self, array: Array, header_bytes: int, file: CheckedFile) -> None:
        self._array, self._header_bytes, self._file = array, header_bytes, file
        self._row_bytes = array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, rows: slice) -> Array:
        """Return consecutive rows of the array."""
        if not self._file.is_verified:
            first, end, _ = rows.indices(len(self._array))
            with damage_reported(self._file.path):
                self._file.verify_bytes(self._byte(first), max(self._byte(end), self._byte(first)))
        return self._array[rows]

    def take(self, rows: NDArray[np.int64], axis: int = 0) -> Array:
        """Return the rows of the array with the given numbers."""
        if not self._file.is_verified:
            first = self._header_bytes + rows * self._row_bytes
            blocks = np.concatenate([first // BLOCK_BYTES, (first + self._row_bytes - 1) // BLOCK_BYTES])
            with damage_reported(self._file.path):
                self._file.verify_blocks(blocks)
        return self._array.take(rows, axis=axis)

    def _byte(self, row: int) -> int:
        return self._header_bytes + row * self._row_bytes


def map_array(path: Path, shape: tuple[int, ...] | None = None) -> Array | LazyArray:
    """Memory-map an array file whose rows are read on demand.

    Raises:
        DamagedDataError: The file is damaged; the data set is quarantined.
        DataError: The file is missing or of another shape.
    """
    return _load(path, shape, is_lazy=path.exists() and path.stat().st_size > EAGER_BYTES)


def read_array(path: Path, shape: tuple[int, ...] | None = None) -> Array:
    """Memory-map an array file after verifying all its blocks; raises the errors of `map_array`."""
    array = _load(path, shape, is_lazy=False)
    assert not isinstance(array, LazyArray)
    return array


def _load(path: Path, shape: tuple[int, ...] | None, *, is_lazy: bool) -> Array | LazyArray:
    with damage_reported(path):
        file = checked_file(path)
        if file is not None:
            file.verify_bytes(0, 1) if is_lazy else file.verify()  # the first block holds the header
        # A plain view, so that reading it costs nothing of numpy's memory-map bookkeeping.
        mapped = np.load(path, mmap_mode="r" if path.stat().st_size > NPY_HEADER_BYTES else None)
    array = mapped.view(np.ndarray)
    if shape is not None and array.shape != shape:
        raise DataError(f"The array {path} has the shape {array.shape}, not {shape}: {_remedy(path)}.")
    if file is None or file.is_verified:
        return array
    return LazyArray(array, path.stat().st_size - array.nbytes, file)


def read_npz(path: Path) -> dict[str, Array]:
    """Read all arrays of an `.npz` file, after comparing their sizes with the size of the file.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file holds other data than arrays, or arrays that are far larger than the file.
        zipfile.BadZipFile: The file is no `.npz` file.
    """
    try:
        with open_regular(path) as file:
            most_bytes = max(LARGEST_EXPANSION * os.fstat(file.fileno()).st_size, LEAST_NPZ_BYTES)
            with zipfile.ZipFile(file) as archive:
                needed_bytes = sum(_array_bytes(archive, name) for name in archive.namelist())
            if needed_bytes > most_bytes:
                raise ValueError(
                    f"the arrays in it take {needed_bytes:,} bytes, more than {LARGEST_EXPANSION} times the file"
                )
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return dict(stored)
    except (RuntimeError, zlib.error, lzma.LZMAError) as error:  # encrypted, of an unknown compression, or damaged
        raise ValueError(str(error)) from error


def _array_bytes(archive: zipfile.ZipFile, name: str) -> int:
    """Return the bytes of an array as stated in its header."""
    with archive.open(name) as member:
        version = np.lib.format.read_magic(member)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"the array {name} has the unsupported format version {version}")
        shape, _, dtype = read_header[version](member)
    if min(shape, default=0) < 0 or dtype.hasobject:
        raise ValueError(f"{name} is not an array of numbers")
    return math.prod(shape) * dtype.itemsize


def write_result(path: Path, array: Array) -> None:
    """Write an array that can be computed again, with a checksum appended, which `numpy.load` ignores.

    Raises:
        OSError: The file cannot be written.
    """
    content = io.BytesIO()
    np.save(content, array)
    replace_file(path, content.getvalue() + zlib.crc32(content.getvalue()).to_bytes(SUM_BYTES))


def read_result(path: Path) -> Array | None:
    """Read an array of `write_result`; return None if it is missing, or was damaged and is now quarantined."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if (fault := fault_of_result(path)) is not None:
        quarantine(path, fault)
        return None
    return None if _is_without_checksum(content) else np.load(io.BytesIO(content))


def fault_of_result(path: Path) -> str | None:
    """Return the fault of an array of `write_result` or `numpy.save`, or None if it is intact."""
    content = path.read_bytes()
    matches = zlib.crc32(content[:-SUM_BYTES]).to_bytes(SUM_BYTES) == content[-SUM_BYTES:]
    return None if matches or _is_without_checksum(content) else "its checksum does not match"


def _is_without_checksum(content: bytes) -> bool:
    """Return True if the content is an intact array of `numpy.save`, as former versions and other steps write it."""
    stream = io.BytesIO(content)
    try:
        np.load(stream)
    except (ValueError, EOFError, OSError):
        return False
    return stream.tell() == len(content)


@contextlib.contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Convert damage found in the block into a `DamagedDataError`, and quarantine the data set of `path`.

    Raises:
        DamagedDataError: A checksum does not match.
        DataError: A file is missing, or is no array although it matches its checksum or has none.
    """
    try:
        yield
    except DamagedFileError as error:
        folder = error.path.parent if is_sealed(error.path.parent) else error.path.parent.parent
        moved = quarantine(folder, f"{error.path.name}: {error.reason}")
        where = f"moved to {moved}" if moved else f"to be removed by hand: {folder}"
        raise DamagedDataError(
            f"The cached data set {path} is damaged ({error.path.name}: {error.reason}) and {where}: run "
            "the same command again to ingest the log again.",
            error.path,
        ) from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"The file {path} of the cached data set cannot be read ({error}): {_remedy(path)}.") from error


def _remedy(path: Path) -> str:
    return f"remove the folder {path.parent} and run the command again, which reads the log again"
