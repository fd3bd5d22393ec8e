"""What trainings hold of this machine: GPUs, and cores of the processor with memory; a lease dies with its process.

Each GPU and each core is a lock of the file system in the home, beside which its holder says who it is. Nothing has to
be given back by a killed process, and there is no ledger that could be out of date: what is not locked is free.
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
    """Who uses an accelerator, for the one who waits.

    Attributes:
        name: Name of the flow run.
        pid: Its process.
        since: When it took it.
        cores: Of the processor; 1 for a GPU.
        memory_bytes: Of the accelerator, as predicted; 0 while nobody can say, which leaves nothing for others.
        until: When it expects to be through; None while nobody can say.
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
        """For instance `train-ml-100k (process 4711, since 2026-03-01 12:00 UTC)`."""
        return f"{self.name} (process {self.pid}, since {self.since:%Y-%m-%d %H:%M} UTC)"

    def sentence(self, accelerator: str) -> str:
        """What it holds, for `shunter status`."""
        cores = f" ({self.cores} cores)" if accelerator == CPU else ""
        memory = f", {self.memory_bytes / 2**30:.2g} GiB" if self.memory_bytes else ""
        until = f", expected until {self.until:%Y-%m-%d %H:%M} UTC" if self.until else ""
        return f"{accelerator}{cores}{memory}: {self.description}{until}"


def slots(name: str) -> list[str]:
    """What an accelerator is leased by: the cores of the processor, a GPU as a whole."""
    return [f"{CPU}-{core}" for core in range(usable_cores())] if name == CPU else [_identity(name)]


@contextmanager
def looking() -> Iterator[None]:
    """Alone with the locks: two that take cores at once, or one that looks who holds them, are in nobody's way."""
    path = Settings().locks / "looking"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, is_singleton=True):
        yield


def take_free(name: str) -> list[tuple[str, FileLock]]:
    """Lock the slots of an accelerator that no other process holds, again those that this process has locked before."""
    found = []
    for slot in slots(name):
        lock = FileLock(_path(slot), is_singleton=True)
        with suppress(Timeout):
            lock.acquire(timeout=0)
            found.append((slot, lock))
    return found


def write_lease(slot: str, lease: Lease) -> None:
    """Say who holds a slot that is locked."""
    write_checked(_path(slot).with_suffix(".json"), lease.model_dump_json())


def leases_of_others(name: str) -> list[Lease]:
    """Who uses an accelerator now, each process once, the first to come first; never this process."""
    found: dict[int, Lease] = {}
    with looking():
        for slot in slots(name):
            lease = _read_held(_path(slot))
            if lease is not None and lease.pid != os.getpid():
                found[lease.pid] = lease
    return sorted(found.values(), key=lambda lease: lease.since)


def all_leases() -> list[tuple[str, Lease]]:
    """Everything that is held on this machine: `cpu`, or the name of a GPU's lock, with its holder."""
    found: dict[tuple[str, int], Lease] = {}
    with looking():
        for path in sorted(Settings().locks.glob("*.lock")):
            lease = _read_held(path)
            if lease is not None:
                found[CPU if path.stem.startswith(f"{CPU}-") else path.stem, lease.pid] = lease
    return [(name, lease) for (name, _), lease in found.items()]


def _identity(name: str) -> str:
    """The same for a GPU whichever devices a process sees."""
    import torch

    return f"gpu-{torch.cuda.get_device_properties(torch.device(name)).uuid}"


def _read_held(path: Path) -> Lease | None:
    """Who holds a slot; None where nobody does, whatever was written beside it."""
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
