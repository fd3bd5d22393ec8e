"""Concurrent reads at many positions of a file by Linux's asynchronous I/O (`io_submit(2)`).

One call submits all reads and another waits for them, without threads that need Python's lock before and after each
read. Sandboxes that forbid `io_uring` mostly allow these calls, which need no library. If they are forbidden too, the
caller uses threads. Only reads that bypass the page cache are asynchronous in this way.
"""

import ctypes
import errno
import os
import platform
import weakref
from functools import cache
from typing import Any

import numpy as np

DEPTH = 64  # largest number of concurrent reads
_PREAD = 0
_CONTROL = np.dtype(  # struct iocb of linux/aio_abi.h, little-endian
    [
        ("data", "<u8"),
        ("key", "<u4"),
        ("flags_of_read", "<u4"),
        ("operation", "<u2"),
        ("priority", "<i2"),
        ("file", "<u4"),
        ("address", "<u8"),
        ("length", "<u8"),
        ("begin", "<i8"),
        ("reserved", "<u8"),
        ("flags", "<u4"),
        ("event_file", "<u4"),
    ]
)
_EVENT = np.dtype([("data", "<u8"), ("control", "<u8"), ("result", "<i8"), ("result_2", "<i8")])


_CALLS = {  # Linux system call numbers of asynchronous I/O
    "x86_64": {"setup": 206, "destroy": 207, "events": 208, "submit": 209},
    "aarch64": {"setup": 0, "destroy": 1, "events": 4, "submit": 2},
}


class KernelReads:
    """Asynchronous reads of one open file; for one thread at a time.

    Args:
        file: Descriptor of the file, opened to bypass the page cache; the caller closes it after `close`.

    Raises:
        OSError: The system does not support asynchronous reads.
    """

    def __init__(self, file: int) -> None:
        calls = _CALLS.get(platform.machine()) if platform.system() == "Linux" else None
        if calls is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._file, self._calls = file, calls
        self._context = ctypes.c_ulong(0)
        _call(calls["setup"], DEPTH, ctypes.byref(self._context))
        self._events = np.zeros(DEPTH, _EVENT)
        self._controls = np.zeros(DEPTH, _CONTROL)
        self._pointers = self._controls.ctypes.data + _CONTROL.itemsize * np.arange(DEPTH, dtype=np.uint64)
        self._end_of_life = weakref.finalize(self, _call, calls["destroy"], self._context)

    def read(self, begins: np.ndarray, lengths: np.ndarray, addresses: np.ndarray) -> np.ndarray:
        """Read up to `DEPTH` pieces, and wait for all of them.

        Args:
            begins: Position of each piece in the file.
            lengths: Bytes of each piece.
            addresses: Memory address of each piece; all values aligned as the file system needs it.

        Returns:
            Number of bytes read, for each piece.

        Raises:
            OSError: A piece could not be read.
        """
        count = len(begins)
        controls = self._controls[:count]
        controls["data"] = np.arange(count)
        controls["operation"], controls["file"] = _PREAD, self._file
        controls["begin"], controls["length"], controls["address"] = begins, lengths, addresses
        results = np.zeros(count, np.int64)
        sent, error = self._submit(count)
        self._wait(sent, results)  # wait for all submitted reads, since they write to the caller's memory
        if error is not None:
            raise error
        if (failed := results[results < 0]).size:
            raise OSError(-int(failed[0]), os.strerror(-int(failed[0])))
        return results

    def close(self) -> None:
        """Release the kernel's queue of asynchronous reads."""
        self._end_of_life()

    def _submit(self, count: int) -> tuple[int, OSError | None]:
        """Submit the reads; return how many were accepted, and the error if not all were."""
        sent = 0
        while sent < count:
            pointer = ctypes.c_void_p(int(self._pointers.ctypes.data) + self._pointers.itemsize * sent)
            try:
                sent += _call(self._calls["submit"], self._context, ctypes.c_long(count - sent), pointer)
            except OSError as error:
                return sent, error
        return sent, None

    def _wait(self, count: int, results: np.ndarray) -> None:
        while count:
            most, events = ctypes.c_long(count), ctypes.c_void_p(self._events.ctypes.data)
            try:
                found = self._events[: _call(self._calls["events"], self._context, most, most, events, None)]
            except InterruptedError:  # by a signal: the reads are still running
                continue
            results[found["data"].astype(np.int64)] = found["result"]
            count -= len(found)


@cache
def _system_call() -> Any:
    """Return the C library's function `syscall`."""
    found = ctypes.CDLL(None, use_errno=True).syscall
    found.restype = ctypes.c_long
    return found


def _call(number: int, *arguments: object) -> int:
    """Make a system call; raise `OSError` if it fails."""
    found = _system_call()(ctypes.c_long(number), *arguments)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found
