"""Reservations of accelerators for training jobs, so that two flows never share a device or CPU cores by accident."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import psutil
from filelock import FileLock

from shunter.hardware.leases import CPU, Lease, lease_lock, leases_of_others, slots, take_free, write_lease
from shunter.hardware.reservation_queue import first_in_queue, in_queue
from shunter.hardware.types import HardwareProfile, Placement
from shunter.masked_console import Console
from shunter.requests import TrainRequest

POLL_SECONDS = 1.0

Tell = Callable[[str], None]
Watch = Callable[[Collection[str]], None]


class _ReservedHere:
    """All accelerators that this process holds through its nested reservations, with callbacks on changes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self.watches: list[Watch] = []
        self.cores = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, count in self._counts.items() if count)

    def add(self, name: str, count: int) -> None:
        self._counts[name] += count
        if name == CPU and not self._counts[name]:
            self.cores = 0

    def report(self) -> None:
        with self.lock:
            for watch in self.watches:
                watch(self.names)


_here = _ReservedHere()


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Call a function with the held accelerators: at once, and on each change while the block runs."""
    with _here.lock:
        _here.watches.append(watch)
        watch(_here.names)
    try:
        yield
    finally:
        with _here.lock:
            _here.watches.remove(watch)


def cores_reserved_here() -> int:
    """Return the number of CPU cores that this process holds."""
    return _here.cores


class Reservation:
    """Reservation of accelerators of this machine by this process: whole GPUs, and all or some CPU cores.

    Each is a file lock and not a slot of Prefect's server. A training job may run without that server, and a killed
    process frees its locks at once. Within one process the locks nest: a flow called by another flow gets the
    accelerators of its caller.
    """

    def __init__(self) -> None:
        self._locks: dict[str, list[tuple[str, FileLock]]] = {}
        self._holder = ""
        self._since = datetime.now(UTC)
        self._thread = threading.get_ident()
        self._said: tuple[int, datetime | None] = (0, None)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the reserved accelerators."""
        return tuple(self._locks)

    @property
    def cores(self) -> int:
        """Return the number of reserved CPU cores."""
        return len(self._locks.get(CPU, ()))

    def of(self, profiles: Sequence[HardwareProfile]) -> list[HardwareProfile]:
        """Return the profiles of reserved accelerators; that of the CPU has only the reserved cores and free memory."""
        found = []
        for profile in profiles:
            accelerator = profile.accelerator
            if accelerator.name == CPU and CPU in self._locks and self.cores < accelerator.cores:
                free = accelerator.memory_bytes - sum(lease.memory_bytes for lease in leases_of_others(CPU))
                memory = max(min(free, psutil.virtual_memory().available), 0)
                part = profile.with_cores(self.cores)
                cpu = part.accelerator.model_copy(update={"memory_bytes": memory})
                found.append(part.model_copy(update={"accelerator": cpu}))
            elif accelerator.name in self._locks:
                found.append(profile)
        return found

    def keep(
        self, placement: Placement, processes: int = 1, *, memory_bytes: int = 0, until: datetime | None = None
    ) -> None:
        """Release all accelerators and cores that the placement does not use with this number of processes.

        One training job keeps as many CPU cores as it has threads, if its memory need is known.

        Args:
            placement: Placement of the training.
            processes: Number of processes that train together.
            memory_bytes: Needed memory of the accelerator; 0 if unknown.
            until: Expected end of the training.
        """
        kept = set(_used_by(placement.accelerator, processes))
        for name in [name for name in self._locks if name not in kept]:
            self._release(name)
        if processes == 1 and memory_bytes and CPU in self._locks:
            self._release(CPU, beyond=placement.threads)
        self._said = memory_bytes, until
        for name in self._locks:
            self._write(name, memory_bytes, until)
        _here.report()

    def take(self, groups: Sequence[Sequence[str]], holder: str) -> str | None:
        """Reserve one accelerator of each group; if a group is in use, reserve nothing and return its first name."""
        for group in groups:
            if not any(self._acquire(name, holder) for name in group):
                self._release_all()
                return group[0]
        _here.report()
        return None

    def take_what_is_free(self, groups: Sequence[Sequence[str]], holder: str) -> bool:
        """Reserve a free accelerator of each group, for the CPU the free cores; return whether any was reserved."""
        for group in groups:
            any(self._acquire(name, holder, in_part=True) for name in group)
        _here.report()
        return bool(self._locks)

    def take_if_free(self, groups: Sequence[Sequence[str]], holder: str) -> str | None:
        """Reserve one accelerator of each group; if a group is in use, reserve nothing and describe its holder."""
        missing = self.take(groups, holder)
        return None if missing is None else _description_of_use(missing, leases_of_others(missing))

    def exchange(self, after: Placement, memory_bytes: int, until: datetime | None) -> bool:
        """Switch the reservation of one training job to another placement, and release the former one.

        Args:
            after: The new placement; on the CPU it may need more cores than are held.
            memory_bytes: Needed memory of the accelerator.
            until: Expected end of the training.

        Returns:
            Whether the new placement was free; if not, nothing has changed.
        """
        name, cores = after.accelerator, self.cores
        if self._thread != threading.get_ident():  # only the thread that took the locks can nest them
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
        """Release all reserved accelerators and cores."""
        self._release_all()
        _here.report()

    def _release_all(self) -> None:
        for name in list(self._locks):
            self._release(name)

    def _acquire(self, name: str, holder: str, *, in_part: bool = False) -> bool:
        with lease_lock():
            # An accelerator is shared only if all its leases state their memory; read before slots are taken.
            may_share = in_part and all(lease.memory_bytes for lease in leases_of_others(name))
            taken = take_free(name)
            if not taken or (len(taken) < len(slots(name)) and not may_share):
                for _, lock in taken:
                    lock.release()
                return False
            for _, lock in self._locks.get(name, ()):  # already held by this reservation
                lock.release()
            if name not in self._locks:
                _here.add(name, 1)
            self._locks[name] = taken
            self._holder, self._since = holder, datetime.now(UTC)
            self._write(name, 0, None)
        return True

    def _write(self, name: str, memory_bytes: int, until: datetime | None) -> None:
        """Write this process as holder of all slots of the accelerator."""
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
    report: Tell | None = None,
    accept: Accept | None = None,
    priority: int = 0,
) -> Iterator[Reservation]:
    """Reserve one accelerator of each group while the block runs; wait while they are in use, and report the wait.

    Nothing is reserved during the wait, so that two jobs that want the same two accelerators never deadlock. A waiting
    job with a higher priority for one of the accelerators goes first. Among equal priorities the first request after
    the release wins.

    Args:
        groups: Names as in `Accelerator.name`; within a group any name is acceptable.
        holder: Name shown to waiting jobs.
        patience_seconds: Longest wait, after which the block runs without a reservation; None waits without limit.
        report: Called with each message about the wait; if omitted, `say`.
        accept: Called if only some of the accelerators are free, with their reservation; returns True to start with
            them. None waits for all.
        priority: Priority in the queue.
    """
    report = report or say
    reservation = Reservation()
    with ExitStack() as line:
        _wait(
            reservation,
            groups,
            line,
            holder=holder,
            patience_seconds=patience_seconds,
            report=report,
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
    report: Tell,
    accept: Accept | None,
    priority: int,
) -> None:
    """Wait until the accelerators that `reserve` requests are reserved; join the queue after a failed attempt."""
    names = [name for group in groups for name in group]
    waiting_for = None
    started = time.monotonic()
    while True:
        ahead = first_in_queue(priority, names)
        if ahead is None:
            missing = reservation.take(groups, holder)
            if missing is None:
                break
            others = leases_of_others(missing)
            # Without other leases the accelerator has just been released: no new message.
            words = waiting_for if waiting_for and not others else _description_of_use(missing, others)
        else:
            words = f"{ahead.description} comes first"
        if ahead is None and accept is not None and reservation.take_what_is_free(groups, holder):
            if accept(reservation):
                parts = [f"{name} ({reservation.cores} cores)" if name == CPU else name for name in reservation.names]
                report(f"{words}: continuing beside that job with {', '.join(parts)}.")
                waiting_for = None
                break
            reservation.release()
        if patience_seconds is not None and time.monotonic() - started >= patience_seconds:
            report(f"{words}: continuing on the same device, which slows both jobs.")
            waiting_for = None
            break
        if waiting_for is None:
            line.enter_context(in_queue(holder, priority, names))
        if words != waiting_for:
            waiting_for = words
            report(f"{words}: waiting until that job ends.")
        time.sleep(POLL_SECONDS)
    if waiting_for:
        report(f"Continuing with {', '.join(reservation.names)}.")


def wanted(
    profiles: Sequence[HardwareProfile], *, processes: int = 1, chosen: Placement | None = None
) -> list[list[str]]:
    """Return groups of accelerator names; one accelerator of each group is to be reserved.

    Before a placement is chosen, all accelerators of the same model (such as H100) form a group, because they are
    interchangeable.

    Args:
        profiles: Accelerators of this machine.
        processes: Number of processes that train together; several processes reserve every accelerator.
        chosen: Placement chosen by an interrupted run; then only its accelerators are needed.
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
    """Return the number of GPUs that a run uses at a time: for processes of one training job, or parallel trials."""
    gpus = sum(profile.accelerator.kind == "cuda" for profile in profiles)
    return max(processes, min(request.search.trials_at_a_time, gpus))


def _used_by(accelerator: str, processes: int) -> tuple[str, ...]:
    """Return the accelerators that a job uses; several GPU processes use the first GPUs, not the named one."""
    if processes == 1 or not accelerator.startswith("cuda"):
        return (accelerator,)
    return tuple(f"cuda:{index}" for index in range(processes))


def _description_of_use(name: str, others: Sequence[Lease]) -> str:
    return f"{name} is used by {' and '.join(lease.description for lease in others) or 'another process'}"


def say(sentence: str) -> None:
    """Print a sentence about the reservation on the terminal."""
    Console(stderr=True, highlight=False).print(sentence, style="dim", soft_wrap=True, markup=False)
