"""Memory that a step frees, kept for the next."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Of mallopt, in glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
LARGEST_KEPT_BYTES = 128 << 20  # of one array: tables are larger, and come from the system
MOST_KEPT_BYTES = 512 << 20
# Threads other than the main one have heaps of 64 MiB, the largest array that is kept there. A heap that is free goes
# back to the system, whatever the threshold, unless the one before it lacks this room, which two heaps never have.
_KEEPS_HEAPS, _DEFAULT_PAD = 2 * (64 << 20), 128 << 10
_within: list[None] = []  # who keeps memory at present


@contextmanager
def kept_memory() -> Iterator[None]:
    """Let this process keep what it frees within, and give it back to the system afterwards.

    The main thread keeps up to half a GiB. Another one keeps all that it had at once, for nothing bounds its heaps: as
    much as its largest step took, which raises no peak of its own.

    glibc gives freed arrays of some megabytes back at once, and gets them again for the next step, page by page and
    filled with zeros: of a step over wide embeddings that is a quarter of the time. Where another library serves
    `malloc`, nothing is changed.
    """
    library = _glibc()
    if library is None:
        yield
        return
    library.mallopt(_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
    library.mallopt(_TRIM_THRESHOLD, MOST_KEPT_BYTES)
    library.mallopt(_TOP_PAD, _KEEPS_HEAPS)
    _within.append(None)
    try:
        yield
    finally:
        _within.pop()
        if not _within:  # a validation within a training leaves the memory to the training
            library.mallopt(_TOP_PAD, _DEFAULT_PAD)
            library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
