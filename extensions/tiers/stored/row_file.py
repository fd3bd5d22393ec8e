"""Rows of embedding tables in an open file, read in blocks, with many concurrent reads.

A block device reads whole blocks, so rows in adjacent blocks are one read. If the file system allows it, reads bypass
the page cache of the operating system. The memory of the tables is then exactly what was reserved, and other programs
cannot evict it. The kernel then runs a bounded number of asynchronous reads; if the kernel does not support them, a
fixed number of reader threads shares the blocks. If the page cache cannot be bypassed, rows are read through it one by
one.
"""

import mmap
import os
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from shunter.errors import CheckpointError, HardwareError
from shunter.extensions.tiers.stored.kernel_reads import DEPTH, KernelReads

BLOCK = 4096
READERS = 8
MOST_BUFFER_BYTES = 256 << 10
FLOAT_BYTES = 4


@dataclass(kw_only=True)
class FileCounts:
    """Statistics of reads.

    Attributes:
        rows: Number of requested rows.
        reads: Number of reads, each of adjacent blocks.
        read_bytes: Bytes of these reads.
        seconds: Seconds that callers waited for rows.
    """

    rows: int = 0
    reads: int = 0
    read_bytes: int = 0
    seconds: float = 0.0


class RowFile:
    """Float32 rows of one width in a file that the caller has opened and checked.

    Args:
        descriptor: Open file; the caller may close the descriptor and remove the file afterwards.
        start: Position of the first row in bytes, a multiple of four.
        rows: Number of rows.
        dim: Width of a row.
        buffer_bytes: Memory of all readers together, at least `least_buffer_bytes`.

    Attributes:
        counts: Statistics of the reads.
        is_direct: Whether reads bypass the page cache.
    """

    def __init__(self, descriptor: int, start: int, rows: int, dim: int, buffer_bytes: int) -> None:
        assert start % FLOAT_BYTES == 0, "floats start at multiples of their size"
        self._start, self._rows, self._dim = start, rows, dim
        self._file, self.is_direct = _reopened(descriptor)
        self._made = _made(self._file)
        self._end = os.fstat(self._file).st_size
        if start + rows * dim * FLOAT_BYTES > self._end:
            raise CheckpointError("The file of the embedding tables is too short for their rows: restore the file.")
        readers = min(buffer_bytes // least_buffer_bytes(dim), READERS)
        assert readers >= 1, "there is memory for a reader"
        # A piece may be longer than its share by one row and the rest of a block.
        self._share = min(buffer_bytes // readers - _overhang(dim), MOST_BUFFER_BYTES) // BLOCK * BLOCK
        sizes = [self._share + _overhang(dim)] * readers
        self._kernel: KernelReads | None = None
        if self.is_direct:
            with suppress(OSError):  # not Linux, forbidden by a sandbox, or all queues in use
                self._kernel = KernelReads(self._file)
        if self._kernel is not None:
            sizes = [buffer_bytes // BLOCK * BLOCK]
            self._share = max((sizes[0] - _overhang(dim)) // DEPTH // BLOCK, 1) * BLOCK
        self._buffers = [mmap.mmap(-1, size) for size in sizes]
        self._free = list(range(len(self._buffers)))
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="rows")
        self.counts = FileCounts()
        self._end_of_life = weakref.finalize(self, _close, self._file, self._readers, self._kernel)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Read embedding rows from the file.

        Args:
            rows: Distinct row numbers, ascending.

        Returns:
            Rows, float32 `[rows, dim]`.

        Raises:
            CheckpointError: The file was changed or truncated since it was opened.
            HardwareError: The file cannot be read.
        """
        begin = time.perf_counter()
        out = np.empty((len(rows), self._dim), np.float32)
        if not len(rows):
            return out
        if _made(self._file) != self._made:
            raise CheckpointError(
                "The file of the embedding tables was changed while the model was in use: restore the file "
                "and load the model again."
            )
        error = self._fill_out(rows, out)
        self.counts.rows += len(rows)
        self.counts.seconds += time.perf_counter() - begin
        if isinstance(error, OSError):
            raise HardwareError(
                f"The file of the embedding tables cannot be read ({error.strerror}): check the disk that holds it."
            ) from error
        if error is not None:
            raise error
        return out

    def close(self) -> None:
        """End the readers and close the file."""
        self._end_of_life()

    def _pieces(self, rows: np.ndarray) -> "_Pieces":
        """Group the rows' blocks into reads of adjacent blocks that fit a reader's buffer, and assign readers."""
        row_bytes = self._dim * FLOAT_BYTES
        begin = self._start + rows * row_bytes
        first, last = begin // BLOCK, (begin + row_bytes - 1) // BLOCK
        blocks = self._share // BLOCK
        is_new = np.ones(len(rows), bool)
        is_new[1:] = (first[1:] > last[:-1] + 1) | (first[1:] // blocks != first[:-1] // blocks)
        row_at = np.flatnonzero(is_new)
        row_end = np.append(row_at[1:], len(rows))
        begins = first[row_at] * BLOCK
        length = (last[row_end - 1] + 1) * BLOCK - begins
        each = max(-(-int(length.sum()) // len(self._buffers)), BLOCK)
        reader = (np.cumsum(length) - length) // each
        cuts = np.flatnonzero(np.diff(reader)) + 1
        parts = list(zip([0, *cuts.tolist()], [*cuts.tolist(), len(begins)], strict=True))
        return _Pieces(begins, length, row_at, row_end, parts)

    def _fill_out(self, rows: np.ndarray, out: np.ndarray) -> BaseException | None:
        """Read all rows into `out` and count the reads; return the error, if any."""
        try:
            if not self.is_direct:
                return self._read_runs(rows, out)
            pieces = self._pieces(rows)
            self.counts.reads += len(pieces.begin)
            self.counts.read_bytes += int(pieces.length.sum())
            if len(pieces.parts) == 1:  # for one part, a thread would take longer than the read
                return self._fill(pieces, pieces.parts[0], rows, out)
        except (OSError, CheckpointError) as error:
            return error
        tasks: list[Future[None]] = [self._readers.submit(self._fill, pieces, part, rows, out) for part in pieces.parts]
        return next((found for task in tasks if (found := task.exception()) is not None), None)

    def _read_runs(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Read runs of adjacent rows through the page cache directly into `out`; this needs no whole blocks."""
        row_bytes = self._dim * FLOAT_BYTES
        first = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
        self.counts.reads += len(first)
        self.counts.read_bytes += out.nbytes
        target = out.data.cast("B")
        ends = [*first[1:].tolist(), len(rows)]
        for begin, end, row in zip(first.tolist(), ends, rows[first].tolist(), strict=True):
            self._read_piece(target[begin * row_bytes : end * row_bytes], self._start + row * row_bytes)

    def _fill(self, pieces: "_Pieces", part: tuple[int, int], rows: np.ndarray, out: np.ndarray) -> None:
        """Read pieces into a buffer until it is full, copy the rows out, and repeat."""
        own = self._free.pop()
        try:
            buffer = self._buffers[own]
            first, end = part
            while first < end:
                lengths = pieces.length[first:end]
                places = np.cumsum(lengths) - lengths
                count = max(int(np.searchsorted(places + lengths, len(buffer), side="right")), 1)
                count = count if self._kernel is None else min(count, DEPTH)
                places, begins = places[:count], pieces.begin[first : first + count]
                self._read_pieces(buffer, places, begins, lengths[:count])
                # Copy the rows of these pieces out; the offset of each piece from file to buffer is `places - begins`.
                which = slice(first, first + count)
                start, last = int(pieces.row_at[which][0]), int(pieces.row_end[which][-1])
                moved = np.repeat(places - begins, pieces.row_end[which] - pieces.row_at[which])
                at = self._start + rows[start:last] * (self._dim * FLOAT_BYTES) + moved
                numbers = np.frombuffer(buffer, np.float32)
                out[start:last] = numbers[(at // FLOAT_BYTES)[:, np.newaxis] + np.arange(self._dim)]
                first += count
        finally:
            self._free.append(own)

    def _read_pieces(self, buffer: mmap.mmap, places: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> None:
        """Read pieces to their positions in a buffer, concurrently if the kernel supports it."""
        left = np.arange(len(begins))
        if self._kernel is not None and len(begins) > 1:
            addresses = np.frombuffer(buffer, np.uint8).ctypes.data + places
            came = self._kernel.read(begins, lengths, addresses)
            left = np.flatnonzero(came < np.minimum(lengths, self._end - begins))
        for one in left.tolist():
            place, begin, length = int(places[one]), int(begins[one]), int(lengths[one])
            self._read_piece(memoryview(buffer)[place : place + length], begin)

    def _read_piece(self, target: memoryview, begin: int) -> None:
        needed = min(len(target), self._end - begin)  # the last block of the file may be incomplete
        done = os.preadv(self._file, [target], begin)
        while 0 < done < needed:
            more = os.preadv(self._file, [target[done:]], begin + done)
            done = done + more if more else 0
        if done < needed:
            raise CheckpointError(
                "The file of the embedding tables was truncated: restore the file and load the model again."
            )


@dataclass(frozen=True)
class _Pieces:
    """File reads: bytes `begin` and `length`, rows `row_at` to `row_end`, and the reads of each reader."""

    begin: np.ndarray
    length: np.ndarray
    row_at: np.ndarray
    row_end: np.ndarray
    parts: list[tuple[int, int]]


def least_buffer_bytes(dim: int) -> int:
    """Return the memory that one reader needs."""
    return BLOCK + _overhang(dim)


def _overhang(dim: int) -> int:
    """Return the largest number of bytes by which a read extends beyond a reader's share of the buffer."""
    return (dim * FLOAT_BYTES // BLOCK + 2) * BLOCK


def _reopened(descriptor: int) -> tuple[int, bool]:
    """Open the same file again, bypassing the page cache if possible; return whether it is bypassed."""
    try:
        direct = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECT)
    except (OSError, AttributeError):  # not supported by the file system or the operating system
        return os.dup(descriptor), False
    try:
        with mmap.mmap(-1, BLOCK) as trial:
            os.preadv(direct, [trial], 0)
    except OSError:
        os.close(direct)
        return os.dup(descriptor), False
    return direct, True


def _made(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns


def _close(descriptor: int, readers: ThreadPoolExecutor, kernel: KernelReads | None) -> None:
    readers.shutdown(wait=False)  # no read is running, and the caller may be a reader thread
    if kernel is not None:
        kernel.close()
    os.close(descriptor)
