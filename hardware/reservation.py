"""Accelerators held for one training at a time, so that two flows never fight for a device."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict
from rich.console import Console

from hardware.types import HardwareProfile, Placement
from shunter.requests import TrainRequest
from shunter.settings import Settings

POLL_SECONDS = 1.0

Tell = Callable[[str], None]
Watch = Callable[[Collection[str]], None]


class Holder(BaseModel):
    """Who uses an accelerator, for the one who waits."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int
    since: datetime

    @property
    def description(self) -> str:
        """For instance `train-ml-100k (process 4711, since 2026-03-01 12:00 UTC)`."""
        return f"{self.name} (process {self.pid}, since {self.since:%Y-%m-%d %H:%M} UTC)"


class _HeldHere:
    """What this process holds by all its reservations, which nest, and who wants to know when that changes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._watches: list[Watch] = []

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, count in self._counts.items() if count)

    def add(self, name: str, count: int) -> None:
        self._counts[name] += count

    def tell(self) -> None:
        with self._lock:
            for watch in self._watches:
                watch(self.names)

    def enter(self, watch: Watch) -> None:
        with self._lock:
            self._watches.append(watch)
            watch(self.names)

    def leave(self, watch: Watch) -> None:
        with self._lock:
            self._watches.remove(watch)


_here = _HeldHere()


def held_here() -> tuple[str, ...]:
    """Accelerators that this process holds, by whichever of its reservations."""
    return _here.names


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Have a function told what this process holds: at once, and for the length of the block whenever that changes.

    Args:
        watch: Function of the names.
    """
    _here.enter(watch)
    try:
        yield
    finally:
        _here.leave(watch)


class Reservation:
    """Accelerators of this machine that this process holds; each is a file lock, which ends with the process.

    A lock of the file system and no slot of Prefect's server, because a training may be started without that server,
    and because what a killed process held is free at once. Within one process the locks nest: a flow called by another
    one gets what its caller holds.
    """

    def __init__(self) -> None:
        self._locks: dict[str, FileLock] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """What is held."""
        return tuple(self._locks)

    def of(self, profiles: Sequence[HardwareProfile]) -> list[HardwareProfile]:
        """Those of the profiles whose accelerator is held."""
        return [profile for profile in profiles if profile.accelerator.name in self._locks]

    def keep(self, placement: Placement, processes: int = 1) -> None:
        """Give back all but what so many processes use at the placement."""
        kept = set(_used_by(placement.accelerator, processes))
        for name in [name for name in self._locks if name not in kept]:
            self._release(name)
        _here.tell()

    def take(self, groups: Sequence[Sequence[str]], holder: str) -> str | None:
        """Take one accelerator of each group, or none at all; returns the name of one that was missing."""
        for group in groups:
            if not any(self._acquire(name, holder) for name in group):
                self._release_all()
                return group[0]
        _here.tell()
        return None

    def take_if_free(self, groups: Sequence[Sequence[str]], holder: str) -> str | None:
        """As `take`; returns in words by whom one is used."""
        missing = self.take(groups, holder)
        return None if missing is None else _description_of_use(missing)

    def release(self) -> None:
        """Give back everything."""
        self._release_all()
        _here.tell()

    def _release_all(self) -> None:
        for name in list(self._locks):
            self._release(name)

    def _acquire(self, name: str, holder: str) -> bool:
        path = _lock_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, is_singleton=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        _here.add(name, 0 if name in self._locks else 1)
        self._locks[name] = lock
        words = Holder(name=holder, pid=os.getpid(), since=datetime.now(UTC)).model_dump_json()
        path.with_suffix(".json").write_text(words)
        return True

    def _release(self, name: str) -> None:
        self._locks.pop(name).release()
        _here.add(name, -1)


@contextmanager
def reserve(
    *groups: Sequence[str], holder: str, patience_seconds: float | None = None, tell: Tell | None = None
) -> Iterator[Reservation]:
    """Hold one accelerator of each group for the length of the block; waits for what others use, and says so.

    Nothing is held while it waits, so that two that want the same two never wait for each other.

    Args:
        groups: Names as in `Accelerator.name`; within a group any will do.
        holder: Name that others are told who have to wait.
        patience_seconds: Longest wait, after which the block runs although it holds nothing; None waits as long as it
            takes.
        tell: Told each sentence about the wait; if omitted, `say`.
    """
    tell = tell or say
    reservation = Reservation()
    waiting_for = None
    started = time.monotonic()
    while (missing := reservation.take(groups, holder)) is not None:
        if patience_seconds is not None and time.monotonic() - started >= patience_seconds:
            tell(f"{_description_of_use(missing)}: going on beside it, which disturbs both.")
            waiting_for = None
            break
        if (words := _description_of_use(missing)) != waiting_for:
            waiting_for = words
            tell(f"{words}: waiting for it.")
        time.sleep(POLL_SECONDS)
    if waiting_for:
        tell(f"Going on with {', '.join(reservation.names)}.")
    try:
        yield reservation
    finally:
        reservation.release()


def wanted(
    profiles: Sequence[HardwareProfile], *, processes: int = 1, chosen: Placement | None = None
) -> list[list[str]]:
    """What to reserve: before a choice one accelerator of each model, for equal ones are chosen alike.

    Args:
        profiles: Accelerators of this machine.
        processes: Number that train together; more than one need a GPU each, whichever they get.
        chosen: Placement that an interrupted run has chosen; then what it uses is enough.
    """
    if chosen is not None:
        return [[name] for name in _used_by(chosen.accelerator, processes)]
    models: dict[str, list[str]] = {}
    for profile in profiles:
        models.setdefault(profile.accelerator.model, []).append(profile.accelerator.name)
    if processes == 1:
        return list(models.values())
    return [[name] for name in dict.fromkeys(name for names in models.values() for name in names)]


def trainings_together(request: TrainRequest, profiles: Sequence[HardwareProfile]) -> int:
    """How many GPUs a run takes at a time where it takes any: for processes that share a training, or for trials.

    Args:
        request: Number of both.
        profiles: Accelerators of this machine.
    """
    gpus = sum(profile.accelerator.kind == "cuda" for profile in profiles)
    return max(request.training.processes, min(request.search.parallel_trials, gpus))


def _used_by(accelerator: str, processes: int) -> tuple[str, ...]:
    """Many processes on GPUs take the first ones, whichever was named."""
    if processes == 1 or not accelerator.startswith("cuda"):
        return (accelerator,)
    return tuple(f"cuda:{index}" for index in range(processes))


def _lock_path(name: str) -> Path:
    return Settings().locks / f"{_identity(name)}.lock"


def _identity(name: str) -> str:
    """The same for a device whichever devices a process sees."""
    if name == "cpu":
        return name
    import torch

    return f"gpu-{torch.cuda.get_device_properties(torch.device(name)).uuid}"


def _description_of_use(name: str) -> str:
    try:
        holder = Holder.model_validate_json(_lock_path(name).with_suffix(".json").read_text()).description
    except (OSError, ValueError):
        holder = "another process"
    return f"{name} is used by {holder}"


def say(sentence: str) -> None:
    """Print a sentence on the terminal."""
    Console(stderr=True, highlight=False).print(sentence, style="dim", soft_wrap=True, markup=False)
