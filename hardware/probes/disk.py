"""Read rates of the disk that holds a folder: sequential, and 4 KiB at random positions."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from shunter.errors import HardwareError
from shunter.hardware.devices.page_cache import BLOCK_BYTES, drop_from_page_cache, page_cache_share
from shunter.hardware.probes.timing import measured_rate
from shunter.hardware.types import DiskRates

FILE_BYTES = 2**27
CHUNK_BYTES = 2**20
RANDOM_READS, READS_A_ROUND = 1000, 100
ROUNDS = 3
MOST_SECONDS = 3.0  # of each kind of read
LARGEST_CACHED_SHARE = 0.05


def measure_disk(folder: Path, file_bytes: int = FILE_BYTES) -> DiskRates:
    """Write a file, drop it from the page cache, read it, and remove it.

    Args:
        folder: Folder on the disk to measure; created if absent.
        file_bytes: Size of the file.

    Raises:
        HardwareError: the folder has no space, or its file system is in memory.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="disk-probe.") as file:
            block = np.random.default_rng(0).bytes(CHUNK_BYTES)  # incompressible
            for _ in range(0, file_bytes, CHUNK_BYTES):
                os.write(file.fileno(), block)
            os.fsync(file.fileno())
            path = Path(file.name)
            sequential = [_sequential_seconds(path, file_bytes) for _ in range(ROUNDS)]
            return DiskRates(
                sequential_bytes_per_second=measured_rate(file_bytes, sequential),
                random_reads_per_second=measured_rate(READS_A_ROUND, _random_seconds(path, file_bytes)),
            )
    except OSError as error:
        raise HardwareError(
            f"The disk of the folder {folder} cannot be measured with a file of {file_bytes:,} bytes "
            f"({error.strerror}): free some space or set SHUNTER_HOME to another folder."
        ) from error


def _drop(path: Path) -> None:
    drop_from_page_cache([path])
    share = page_cache_share([path])
    if share is None or share > LARGEST_CACHED_SHARE:
        raise HardwareError(
            f"The disk of the folder {path.parent} cannot be measured, because its file system keeps files "
            "in memory: set SHUNTER_HOME to a folder on a disk."
        )


def _sequential_seconds(path: Path, size: int) -> float:
    _drop(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        started = time.perf_counter()
        for offset in range(0, size, CHUNK_BYTES):
            os.pread(descriptor, CHUNK_BYTES, offset)
        return time.perf_counter() - started
    finally:
        os.close(descriptor)


def _random_seconds(path: Path, size: int) -> list[float]:
    """Return the seconds of each hundred reads; no block is read twice."""
    _drop(path)
    blocks = np.random.default_rng(0).permutation(size // BLOCK_BYTES)[:RANDOM_READS]
    descriptor = os.open(path, os.O_RDONLY)
    seconds = []
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for some in blocks[: len(blocks) // READS_A_ROUND * READS_A_ROUND].reshape(-1, READS_A_ROUND):
            started = time.perf_counter()
            for block in some:
                os.pread(descriptor, BLOCK_BYTES, int(block) * BLOCK_BYTES)
            seconds.append(time.perf_counter() - started)
            if sum(seconds) > MOST_SECONDS:
                break
        return seconds
    finally:
        os.close(descriptor)
