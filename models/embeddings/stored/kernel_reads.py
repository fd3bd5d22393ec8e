"""Reads at many places of a file that are under way at once, by Linux's asynchronous reads (`io_submit(2)`).

One call hands the kernel all of them and another waits for them, without threads that each take Python's lock before
and after a read. Sandboxes that forbid `io_uring` mostly allow these calls, and they need no library; where they are
forbidden too, whoever reads takes threads. Only reads past the page cache are asynchronous so.
"""

import ctypes
import errno
import os
import platform
import weakref
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

DEPTH = 64  # reads under way at most
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


@dataclass(frozen=True)
class _Calls:
    """Numbers of the system calls."""

    setup: int
    destroy: int
    events: int
    submit: int


_CALLS = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2)}


class KernelReads:
    """Reads of one open file; one thread at a time.

    Args:
        file: Descriptor of the file, opened past the page cache; whoever opened it closes it, after this.

    Raises:
        OSError: There is no such thing here.
    """

    def __init__(self, file: int) -> None:
        calls = _CALLS.get(platform.machine()) if platform.system() == "Linux" else None
        if calls is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._file, self._calls = file, calls
        self._context = ctypes.c_ulong(0)
        _call(calls.setup, DEPTH, ctypes.byref(self._context))
        self._events = np.zeros(DEPTH, _EVENT)
        self._controls = np.zeros(DEPTH, _CONTROL)
        self._pointers = self._controls.ctypes.data + _CONTROL.itemsize * np.arange(DEPTH, dtype=np.uint64)
        self._end_of_life = weakref.finalize(self, _call, calls.destroy, self._context)

    def read(self, begins: np.ndarray, lengths: np.ndarray, addresses: np.ndarray) -> np.ndarray:
        """Read some pieces, `DEPTH` at most, and wait for all of them.

        Args:
            begins: Where each begins in the file.
            lengths: Bytes of each.
            addresses: Where each goes in memory; all aligned as the file system wants it.

        Returns:
            Bytes that came, of each piece.

        Raises:
            OSError: One could not be read.
        """
        count = len(begins)
        controls = self._controls[:count]
        controls["data"] = np.arange(count)
        controls["operation"], controls["file"] = _PREAD, self._file
        controls["begin"], controls["length"], controls["address"] = begins, lengths, addresses
        results = np.zeros(count, np.int64)
        sent, error = self._submit(count)
        self._wait(sent, results)  # all that is under way, for it writes to the memory of whoever asked
        if error is not None:
            raise error
        if (failed := results[results < 0]).size:
            raise OSError(-int(failed[0]), os.strerror(-int(failed[0])))
        return results

    def close(self) -> None:
        """Give the kernel its queue back."""
        self._end_of_life()

    def _submit(self, count: int) -> tuple[int, OSError | None]:
        """How many were taken, and why not all."""
        sent = 0
        while sent < count:
            pointer = ctypes.c_void_p(int(self._pointers.ctypes.data) + self._pointers.itemsize * sent)
            try:
                sent += _call(self._calls.submit, self._context, ctypes.c_long(count - sent), pointer)
            except OSError as error:
                return sent, error
        return sent, None

    def _wait(self, count: int, results: np.ndarray) -> None:
        while count:
            most, events = ctypes.c_long(count), ctypes.c_void_p(self._events.ctypes.data)
            try:
                found = self._events[: _call(self._calls.events, self._context, most, most, events, None)]
            except InterruptedError:  # by a signal: they are under way still
                continue
            results[found["data"].astype(np.int64)] = found["result"]
            count -= len(found)


@cache
def _system_call() -> Any:
    """The C library's `syscall`."""
    found = ctypes.CDLL(None, use_errno=True).syscall
    found.restype = ctypes.c_long
    return found


def _call(number: int, *arguments: object) -> int:
    """A system call.

    Raises:
        OSError: It failed.
    """
    found = _system_call()(ctypes.c_long(number), *arguments)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found
