"""The kernel's page cache: drop files so that reads come from disk, and measure the cached share."""

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

BLOCK_BYTES = 4096


def drop_from_page_cache(paths: Iterable[Path]) -> None:
    """Request that the kernel drops files from the page cache; no privileges are needed.

    Pages that a process has mapped stay cached, as do files on an in-memory file system. `page_cache_share` returns the
    share that is still cached.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # dirty pages are not dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def page_cache_share(paths: Iterable[Path]) -> float | None:
    """Return the share of the files' pages in the page cache; None if the kernel does not report it.

    The kernel reports only files that this process may write. No page is read, because reading would load the page.
    """
    cached = pages = 0
    for path in paths:
        if path.stat().st_size:
            if not os.access(path, os.W_OK):
                return None
            resident = _resident_pages(path)
            if resident is None:
                return None
            cached += sum(resident)
            pages += len(resident)
    return cached / pages if pages else None


def _resident_pages(path: Path) -> list[bool] | None:
    """Return for each page of a file whether it is in memory, by mincore(2) on a mapping without page accesses."""
    mincore = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)
    if mincore is None:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        found = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        failed = mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(mapped)), found)
        del start  # a mapping with an exported pointer cannot be closed
    return None if failed else [bool(page & 1) for page in found]
