"""Retention of freed malloc memory between the steps of a training run."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
LARGEST_KEPT_BYTES = 128 << 20  # of one array: tables are larger, and are allocated by the system
MOST_KEPT_BYTES = 512 << 20
# Threads other than the main thread have heaps of 64 MiB, which is the largest array retained there. glibc returns a
# free heap to the system, whatever the threshold, unless the heap before it has less free room than this pad. Twice
# the size of a heap is more room than any heap has.
_KEEPS_HEAPS, _DEFAULT_PAD = 2 * (64 << 20), 128 << 10
_within: list[None] = []  # one entry for each open `malloc_retention` block


@contextmanager
def malloc_retention() -> Iterator[None]:
    """Retain memory that this process frees within the block, and return it to the system afterwards.

    The main thread retains up to half a GiB. Other threads have no such bound. They retain as much memory as their
    largest step used, so that the peak does not rise.

    By default glibc returns freed arrays of some megabytes to the system at once. The next step gets them again page by
    page, filled with zeros, which takes a quarter of the time of a step over wide embeddings. Where another library
    serves `malloc`, nothing changes.
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
        if not _within:  # a validation within a training run leaves the memory to the run
            library.mallopt(_TOP_PAD, _DEFAULT_PAD)
            library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
