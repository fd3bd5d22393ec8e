"""Leases of this machine's GPUs, CPU cores and memory; a lease ends with the process that holds it.

Each GPU and each core is a file lock in Shunter's home, beside a file that describes its holder. A killed process has
nothing to release, and no record can become outdated: an unlocked slot is free.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from shunter.checked_json import read_checked, write_checked
from shunter.errors import DamagedFileError
from shunter.hardware.devices.discovery import usable_cores
from shunter.settings import Settings

CPU = "cpu"


class Lease(BaseModel):
    """Holder of an accelerator, as shown to processes that wait for it.

    Attributes:
        name: Name of the flow run.
        pid: Process id of the holder.
        since: Start of the lease.
        cores: Number of CPU cores; 1 for a GPU.
        memory_bytes: Predicted memory on the accelerator; 0 if unknown, which excludes other processes from the
            accelerator.
        until: Expected end of the lease; None if unknown.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int
    since: datetime
    cores: PositiveInt = 1
    memory_bytes: NonNegativeInt = 0
    until: datetime | None = None

    @property
    def description(self) -> str:
        """Return the holder of the lease, such as `train-ml-100k (process 4711, since 2026-03-01 12:00 UTC)`."""
        return f"{self.name} (process {self.pid}, since {self.since:%Y-%m-%d %H:%M} UTC)"


def slots(name: str) -> list[str]:
    """Return the lock names of an accelerator: one for each CPU core, one for a whole GPU."""
    return [f"{CPU}-{core}" for core in range(usable_cores())] if name == CPU else [_identity(name)]


@contextmanager
def lease_lock() -> Iterator[None]:
    """Hold the lease lock while the block runs, so that processes take and inspect slots one at a time."""
    path = Settings().locks / "looking"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, is_singleton=True):
        yield


def take_free(name: str) -> list[tuple[str, FileLock]]:
    """Lock the accelerator's slots that no other process holds; slots that this process holds are locked once more."""
    found = []
    for slot in slots(name):
        lock = FileLock(_path(slot), is_singleton=True)
        with suppress(Timeout):
            lock.acquire(timeout=0)
            found.append((slot, lock))
    return found


def write_lease(slot: str, lease: Lease) -> None:
    """Write the file beside a slot's lock that describes the holder."""
    write_checked(_path(slot).with_suffix(".json"), lease.model_dump_json())


def leases_of_others(name: str) -> list[Lease]:
    """Return the leases of other processes on an accelerator, one for each process, oldest first."""
    found: dict[int, Lease] = {}
    with lease_lock():
        for slot in slots(name):
            lease = _read_held(_path(slot))
            if lease is not None and lease.pid != os.getpid():
                found[lease.pid] = lease
    return sorted(found.values(), key=lambda lease: lease.since)


def all_leases() -> list[tuple[str, Lease]]:
    """Return all leases on this machine as pairs (accelerator, lease); an accelerator is `cpu` or a GPU's lock name."""
    found: dict[tuple[str, int], Lease] = {}
    with lease_lock():
        for path in sorted(Settings().locks.glob("*.lock")):
            lease = _read_held(path)
            if lease is not None:
                found[CPU if path.stem.startswith(f"{CPU}-") else path.stem, lease.pid] = lease
    return [(name, lease) for (name, _), lease in found.items()]


def _identity(name: str) -> str:
    """Return a GPU's lock name, independent of which devices a process sees."""
    import torch

    return f"gpu-{torch.cuda.get_device_properties(torch.device(name)).uuid}"


def _read_held(path: Path) -> Lease | None:
    """Return the lease of a slot; None if the slot is not locked, even if an old description file exists."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        try:
            return read_checked(path.with_suffix(".json"), Lease.model_validate_json)
        except (OSError, DamagedFileError):
            return Lease(name="another process", pid=0, since=datetime.now(UTC))
    lock.release()
    return None


def _path(slot: str) -> Path:
    return Settings().locks / f"{slot}.lock"
