"""Accelerators held for a training, so that two flows never fight for a device or for cores of the processor."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import psutil
from filelock import FileLock

from shunter.hardware.leases import CPU, Lease, leases_of_others, looking, slots, take_free, write_lease
from shunter.hardware.types import HardwareProfile, Placement
from shunter.hardware.waiting_line import first_in_line, in_line
from shunter.masked_console import Console
from shunter.requests import TrainRequest

POLL_SECONDS = 1.0

Tell = Callable[[str], None]
Watch = Callable[[Collection[str]], None]


class _HeldHere:
    """What this process holds by all its reservations, which nest, and who wants to know when that changes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._watches: list[Watch] = []
        self.cores = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, count in self._counts.items() if count)

    def add(self, name: str, count: int) -> None:
        self._counts[name] += count
        if name == CPU and not self._counts[name]:
            self.cores = 0

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


def cores_held_here() -> int:
    """Cores of the processor that this process holds; 0 where it holds none of it."""
    return _here.cores


class Reservation:
    """Accelerators of this machine that this process holds: GPUs as a whole, of the processor all cores or some.

    Each is a lock of the file system and no slot of Prefect's server, because a training may be started without that
    server, and because what a killed process held is free at once. Within one process the locks nest: a flow called by
    another one gets what its caller holds.
    """

    def __init__(self) -> None:
        self._locks: dict[str, list[tuple[str, FileLock]]] = {}
        self._holder = ""
        self._since = datetime.now(UTC)
        self._thread = threading.get_ident()
        self._said: tuple[int, datetime | None] = (0, None)

    @property
    def names(self) -> tuple[str, ...]:
        """What is held."""
        return tuple(self._locks)

    @property
    def cores(self) -> int:
        """How many cores of the processor are held."""
        return len(self._locks.get(CPU, ()))

    def of(self, profiles: Sequence[HardwareProfile]) -> list[HardwareProfile]:
        """Those of the profiles whose accelerator is held, the processor with what is left of cores and memory."""
        return [self._left_of(profile) for profile in profiles if profile.accelerator.name in self._locks]

    def keep(
        self, placement: Placement, processes: int = 1, *, memory_bytes: int = 0, until: datetime | None = None
    ) -> None:
        """Give back all but what so many processes use at the placement.

        Of the processor, one training keeps as many cores as it has threads, if it is known what memory it needs.

        Args:
            placement: Where it trains.
            processes: How many train together.
            memory_bytes: What it needs of the accelerator's memory; 0 where that is unknown.
            until: When it expects to be through.
        """
        kept = set(_used_by(placement.accelerator, processes))
        for name in [name for name in self._locks if name not in kept]:
            self._release(name)
        if processes == 1 and memory_bytes and CPU in self._locks:
            self._release(CPU, beyond=placement.threads)
        self._said = memory_bytes, until
        for name in self._locks:
            self._write(name, memory_bytes, until)
        _here.tell()

    def take(self, groups: Sequence[Sequence[str]], holder: str) -> str | None:
        """Take one accelerator of each group, or none at all; returns the name of one that was missing."""
        for group in groups:
            if not any(self._acquire(name, holder) for name in group):
                self._release_all()
                return group[0]
        _here.tell()
        return None

    def take_what_is_free(self, groups: Sequence[Sequence[str]], holder: str) -> bool:
        """Take one accelerator of each group that has a free one, and of the processor what is left.

        Returns:
            Whether there was anything.
        """
        for group in groups:
            any(self._acquire(name, holder, in_part=True) for name in group)
        _here.tell()
        return bool(self._locks)

    def take_if_free(self, groups: Sequence[Sequence[str]], holder: str) -> str | None:
        """As `take`; returns in words by whom one is used."""
        missing = self.take(groups, holder)
        return None if missing is None else _description_of_use(missing, leases_of_others(missing))

    def exchange(self, after: Placement, memory_bytes: int, until: datetime | None) -> bool:
        """Hold what another placement of one training uses, and no longer what it used before.

        Args:
            after: The placement; of the processor it may be more of the cores that are held.
            memory_bytes: What it needs of the accelerator's memory.
            until: When it expects to be through.

        Returns:
            Whether that was free; else nothing has changed.
        """
        name, cores = after.accelerator, self.cores
        if self._thread != threading.get_ident():  # locks nest in the thread that has taken them
            return False
        if not self._acquire(name, self._holder, in_part=True):
            return False
        if name == CPU and self.cores < after.threads:
            self._release(CPU, beyond=cores)
            if cores:
                self._write(CPU, *self._said)
            return False
        self.keep(after, memory_bytes=memory_bytes, until=until)
        return True

    def release(self) -> None:
        """Give back everything."""
        self._release_all()
        _here.tell()

    def _left_of(self, profile: HardwareProfile) -> HardwareProfile:
        accelerator = profile.accelerator
        if accelerator.name != CPU or self.cores >= accelerator.cores:
            return profile
        free = accelerator.memory_bytes - sum(lease.memory_bytes for lease in leases_of_others(CPU))
        memory = max(min(free, psutil.virtual_memory().available), 0)
        part = profile.with_cores(self.cores)
        return part.model_copy(update={"accelerator": part.accelerator.model_copy(update={"memory_bytes": memory})})

    def _release_all(self) -> None:
        for name in list(self._locks):
            self._release(name)

    def _acquire(self, name: str, holder: str, *, in_part: bool = False) -> bool:
        with looking():
            may_share = in_part and _memory_is_known(name)  # asked before anything is taken, which others have named
            taken = take_free(name)
            if not taken or (len(taken) < len(slots(name)) and not may_share):
                for _, lock in taken:
                    lock.release()
                return False
            for _, lock in self._locks.get(name, ()):  # held by this very reservation already
                lock.release()
            if name not in self._locks:
                _here.add(name, 1)
            self._locks[name] = taken
            self._holder, self._since = holder, datetime.now(UTC)
            self._write(name, 0, None)
        return True

    def _write(self, name: str, memory_bytes: int, until: datetime | None) -> None:
        """Say who holds it."""
        held = self._locks[name]
        lease = Lease(
            name=self._holder,
            pid=os.getpid(),
            since=self._since,
            cores=len(held),
            memory_bytes=memory_bytes,
            until=until,
        )
        for slot, _ in held:
            write_lease(slot, lease)
        if name == CPU:
            _here.cores = len(held)

    def _release(self, name: str, beyond: int = 0) -> None:
        held = self._locks.pop(name)
        for _, lock in held[beyond:]:
            lock.release()
        if beyond:
            self._locks[name] = held[:beyond]
        else:
            _here.add(name, -1)


Accept = Callable[[Reservation], bool]


@contextmanager
def reserve(
    *groups: Sequence[str],
    holder: str,
    patience_seconds: float | None = None,
    tell: Tell | None = None,
    accept: Accept | None = None,
    priority: int = 0,
) -> Iterator[Reservation]:
    """Hold one accelerator of each group for the length of the block; waits for what others use, and says so.

    Nothing is held while it waits, so that two that want the same two never wait for each other. Who waits with a
    higher priority for something of that goes first; among equals it is whoever asks when it is free.

    Args:
        groups: Names as in `Accelerator.name`; within a group any will do.
        holder: Name that others are told who have to wait.
        patience_seconds: Longest wait, after which the block runs although it holds nothing; None waits as long as it
            takes.
        tell: Told each sentence about the wait; if omitted, `say`.
        accept: Asked whether what is free will do where not all is; None insists on all.
        priority: Over others that wait.
    """
    tell = tell or say
    reservation = Reservation()
    with ExitStack() as line:
        _wait(
            reservation,
            groups,
            line,
            holder=holder,
            patience_seconds=patience_seconds,
            tell=tell,
            accept=accept,
            priority=priority,
        )
    try:
        yield reservation
    finally:
        reservation.release()


def _wait(
    reservation: Reservation,
    groups: Sequence[Sequence[str]],
    line: ExitStack,
    *,
    holder: str,
    patience_seconds: float | None,
    tell: Tell,
    accept: Accept | None,
    priority: int,
) -> None:
    """Until the reservation holds what `reserve` asks for; in the waiting line from the first time that it cannot."""
    names = [name for group in groups for name in group]
    waiting_for = None
    started = time.monotonic()
    while True:
        ahead = first_in_line(priority, names)
        if ahead is None:
            missing = reservation.take(groups, holder)
            if missing is None:
                break
            others = leases_of_others(missing)
            # Without others it has been given up since: there is nothing new to tell.
            words = waiting_for if waiting_for and not others else _description_of_use(missing, others)
        else:
            words = f"{ahead.description} comes first"
        if ahead is None and accept is not None and reservation.take_what_is_free(groups, holder):
            if accept(reservation):
                tell(f"{words}: going on beside it with {_description_of(reservation)}.")
                waiting_for = None
                break
            reservation.release()
        if patience_seconds is not None and time.monotonic() - started >= patience_seconds:
            tell(f"{words}: going on beside it, which disturbs both.")
            waiting_for = None
            break
        if waiting_for is None:
            line.enter_context(in_line(holder, priority, names))
        if words != waiting_for:
            waiting_for = words
            tell(f"{words}: waiting for it.")
        time.sleep(POLL_SECONDS)
    if waiting_for:
        tell(f"Going on with {', '.join(reservation.names)}.")


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


def trainings_together(request: TrainRequest, profiles: Sequence[HardwareProfile], processes: int) -> int:
    """How many GPUs a run takes at a time where it takes any: for processes that share a training, or for trials.

    Args:
        request: Number of trials.
        profiles: Accelerators of this machine.
        processes: Those of a training.
    """
    gpus = sum(profile.accelerator.kind == "cuda" for profile in profiles)
    return max(processes, min(request.search.trials_at_a_time, gpus))


def _used_by(accelerator: str, processes: int) -> tuple[str, ...]:
    """Many processes on GPUs take the first ones, whichever was named."""
    if processes == 1 or not accelerator.startswith("cuda"):
        return (accelerator,)
    return tuple(f"cuda:{index}" for index in range(processes))


def _memory_is_known(name: str) -> bool:
    """Whether all who use an accelerator have said what memory they need; until then nobody shares it with them."""
    return all(lease.memory_bytes for lease in leases_of_others(name))


def _description_of(reservation: Reservation) -> str:
    return ", ".join(f"{name} ({reservation.cores} cores)" if name == CPU else name for name in reservation.names)


def _description_of_use(name: str, others: Sequence[Lease]) -> str:
    return f"{name} is used by {' and '.join(lease.description for lease in others) or 'another process'}"


def say(sentence: str) -> None:
    """Print a sentence on the terminal."""
    Console(stderr=True, highlight=False).print(sentence, style="dim", soft_wrap=True, markup=False)
