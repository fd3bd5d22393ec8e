"""What the kernel keeps of files in memory: dropped on purpose, so that a read comes from the disk."""

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

BLOCK_BYTES = 4096


def drop_from_page_cache(paths: Iterable[Path]) -> None:
    """Ask the kernel to forget files; no rights are needed.

    What a process has mapped stays, and so does everything on a file system that lives in memory:
    `page_cache_share` says whether it worked.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # a page that is still to be written is not dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def page_cache_share(paths: Iterable[Path]) -> float | None:
    """Share of the files' pages that lie in the page cache; None where the kernel does not tell.

    It is told of files that this process may write. Nothing is read: a sample of reads would bring in what it asks for.
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
    """Whether each page of a file is in memory, by mincore(2) on a mapping that touches none of them."""
    mincore = getattr(ctypes.CDLL(None, use_errno=True), "mincore", None)
    if mincore is None:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        found = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        failed = mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(mapped)), found)
        del start  # a mapping that is pointed into cannot be closed
    return None if failed else [bool(page & 1) for page in found]
