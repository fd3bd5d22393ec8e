"""What the kernel keeps of files in memory: dropped on purpose, so that a read comes from the disk."""

import os
from collections.abc import Iterable
from pathlib import Path

BLOCK_BYTES = 4096
SAMPLES = 256


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
    """Share of the files that lies in the page cache, from a sample of blocks; None where the kernel does not tell."""
    cached = seen = 0
    for path in paths:
        size = path.stat().st_size
        step = max(BLOCK_BYTES, size // SAMPLES // BLOCK_BYTES * BLOCK_BYTES)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # The answer must not bring in what it asks about.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            for offset in range(0, size, step):
                seen += 1
                cached += _is_cached(descriptor, offset)
        except OSError:
            return None
        finally:
            os.close(descriptor)
    return cached / seen if seen else None


def _is_cached(descriptor: int, offset: int) -> bool:
    try:
        os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True
