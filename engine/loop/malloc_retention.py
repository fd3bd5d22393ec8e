"""Retention of freed malloc memory between the steps of a training run."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
LARGEST_KEPT_BYTES = 128 << 20  # largest array whose freed memory is retained; larger ones (tables) are memory-mapped
MOST_KEPT_BYTES = 512 << 20
# Threads other than the main thread have heaps of 64 MiB, so no larger array is retained for them. Whatever the trim
# threshold, glibc returns a free heap to the system if the preceding heap has at least this pad of free memory. A pad
# of twice the heap size is more than any heap can have, so that no heap is returned.
_KEEPS_HEAPS, _DEFAULT_PAD = 2 * (64 << 20), 128 << 10
_within: list[None] = []  # one entry for each open `malloc_retention` block


@contextmanager
def malloc_retention() -> Iterator[None]:
    """Retain memory that this process frees within the block, and return it to the system afterwards.

    The main thread retains up to half a GiB. Other threads have no such bound: they retain as much memory as their
    largest step used, so that the peak does not rise.

    By default glibc returns freed arrays of some megabytes to the system at once. The next step has to allocate the
    memory again page by page, filled with zeros, which takes a quarter of the time of a step with wide embeddings. If
    another library provides `malloc`, this function changes nothing.
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
        if not _within:  # the outermost block returns the memory; an inner block is e.g. a validation within training
            library.mallopt(_TOP_PAD, _DEFAULT_PAD)
            library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
