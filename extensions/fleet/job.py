"""Training job as the scheduler sees it: arrival time, requested accelerators, and speed by placement."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol

from shunter.extensions.fleet.cluster import MACHINE, NETWORK, RACK, Cluster, Placement

COSTS = ("start_seconds", "checkpoint_seconds", "restore_seconds")  # fields of `Job` that may differ by type


class Conditions(NamedTuple):
    """Conditions under which a job runs.

    Attributes:
        accelerator: Accelerator type.
        counts: Number of accelerators on each machine of the job.
        level: Distance level of the placement.
        slowdown: Factor on the job's communication time; 1 if no other job shares the network.
        speed: Relative speed of the accelerators, which is that of the slowest machine.
    """

    accelerator: str
    counts: tuple[int, ...]
    level: int
    slowdown: float = 1.0
    speed: float = 1.0


class Need(NamedTuple):
    """Needs of a job on each of its machines, in addition to the number of accelerators.

    Attributes:
        part: Accelerators that must be on one machine, see `Job.part`.
        memory_gib: Host memory of each process of the job; 0 if unknown.
    """

    part: int | None = None
    memory_gib: float = 0.0

    def memory(self, accelerators: int) -> float:
        """Return the server memory needed by this number of accelerators on one machine."""
        return self.memory_gib * (1 if self.part is None else accelerators // self.part)

    def room(self, free: int, memory_gib: float) -> int:
        """Return how many accelerators of a machine the job could hold, given its free accelerators and memory."""
        if self.part is None:
            return free if self.memory_gib <= memory_gib else 0
        parts = free // self.part
        return self.part * (min(parts, int(memory_gib / self.memory_gib)) if self.memory_gib else parts)


ANYWHERE = Need()


class Work(Protocol):
    """Amount of work of a job, and its speed. Each implementation defines the unit of progress.

    The simulator calls the methods when a job starts or stops, or its conditions change. All methods are pure.
    """

    def types(self) -> tuple[str, ...]:
        """Return the accelerator types that can run the job, the fastest first; empty if all types are equal."""
        ...

    def counts(self, asked: int) -> tuple[int, ...]:
        """Return the allowed numbers of accelerators, ascending; a rigid job allows only the requested number."""
        ...

    def seconds_left(self, done: float, conditions: Conditions) -> float:
        """Return the seconds until the end, given the progress so far."""
        ...

    def advance(self, done: float, seconds: float, conditions: Conditions) -> float:
        """Return the progress after a number of further seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Iterations:
    """Work of equal iterations, each with compute and communication.

    Attributes:
        compute_seconds: Compute time of one iteration by accelerator type; the type "" applies to any.
        communication_seconds: Communication time of one iteration by accelerator type, within a machine, within a rack,
            and across racks, on the requested number of accelerators.
        speedups: Relative speed of compute on other allowed numbers of accelerators, compared with the requested
            number.
    """

    count: float
    compute_seconds: Mapping[str, float]
    communication_seconds: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    speedups: Mapping[int, float] = field(default_factory=dict)

    def types(self) -> tuple[str, ...]:
        """Return the accelerator types that can run the job, the fastest first; empty if all types are equal."""
        names = [name for name in self.compute_seconds if name]
        return tuple(sorted(names, key=lambda name: self.iteration_seconds(Conditions(name, (1,), MACHINE))))

    def counts(self, asked: int) -> tuple[int, ...]:
        """Return the allowed numbers of accelerators, ascending; a rigid job allows only the requested number."""
        return tuple(sorted({asked, *self.speedups}))

    def iteration_seconds(self, conditions: Conditions) -> float:
        """Return the time of one iteration."""
        name = conditions.accelerator if conditions.accelerator in self.compute_seconds else ""
        communication = self.communication_seconds.get(name)
        waits = communication[conditions.level] * conditions.slowdown if communication else 0.0
        speed = conditions.speed * self.speedups.get(sum(conditions.counts), 1.0) if self.speedups else conditions.speed
        return self.compute_seconds[name] / speed + waits

    def seconds_left(self, done: float, conditions: Conditions) -> float:
        """Return the seconds until the end, given the progress so far."""
        return max(self.count - done, 0.0) * self.iteration_seconds(conditions)

    def advance(self, done: float, seconds: float, conditions: Conditions) -> float:
        """Return the progress after a number of further seconds."""
        return min(done + seconds / self.iteration_seconds(conditions), self.count)


@dataclass(frozen=True, slots=True)
class Job:
    """Training job of a trace or a queue.

    Attributes:
        name: Name of the job, unique in a trace.
        arrival_seconds: Time of submission.
        accelerators: Requested number of accelerators, all of one type.
        accelerators_on: Requested number by type where it differs from `accelerators`: for example four cores, or one
            GPU.
        work: Amount of work and the job's speed.
        start_seconds: Seconds from the job's first start to its first iteration.
        checkpoint_seconds: Seconds to save the job's state when it is stopped.
        restore_seconds: Seconds to restore the job's state.
        checkpoint_every_seconds: Interval of the job's checkpoints; an outage loses the progress after the last one.
        preemptible: If False, the job must not be stopped.
        weight: Weight of the job under policies that divide the cluster.
        deadline_seconds: Deadline in seconds after the job's arrival; None without a deadline.
        memory_gib: Memory needed on each of the job's accelerators; 0 if unknown.
        server_memory_gib: Server memory needed by each of the job's processes, shared by all jobs there; 0 if unknown.
        priority: Jobs of higher priority come first under policies that order jobs; other policies use `weight`.
        part: Accelerators per process of a training run with several processes; each part must be on one machine. With
            None a simulated job may be split in any way, and a live one must be on one machine.
        costs_on: Values of `start_seconds`, `checkpoint_seconds` and `restore_seconds` by accelerator type, where they
            differ; the fields hold their means.
    """

    name: str
    arrival_seconds: float
    accelerators: int
    work: Work
    start_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    restore_seconds: float = 0.0
    checkpoint_every_seconds: float = 600.0
    preemptible: bool = True
    weight: float = 1.0
    deadline_seconds: float | None = None
    memory_gib: float = 0.0
    priority: int = 0
    part: int | None = None
    costs_on: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    accelerators_on: Mapping[str, int] = field(default_factory=dict)
    server_memory_gib: float = 0.0

    def asks(self, accelerator: str) -> int:
        """Return the number of accelerators of a type that the job requests."""
        return self.accelerators_on.get(accelerator, self.accelerators) if self.accelerators_on else self.accelerators

    def part_on(self, accelerator: str) -> int | None:
        """Return the accelerators of a type that must be on one machine, see `part`."""
        if self.part is None or not self.accelerators_on:
            return self.part
        return self.asks(accelerator) * self.part // self.accelerators

    def need(self, accelerator: str) -> Need:
        """Return the needs of the job on each machine of a type."""
        if self.part is None and not self.server_memory_gib:
            return ANYWHERE
        return Need(self.part_on(accelerator), self.server_memory_gib)

    def starts_in(self, accelerator: str) -> float:
        """Return the seconds of the job's first start on a type."""
        return self._cost("start_seconds", accelerator)

    def moves_in(self, accelerator: str) -> float:
        """Return the seconds to stop the job and restore it on a type, as if it had run on that type before."""
        return self._cost("checkpoint_seconds", accelerator) + self._cost("restore_seconds", accelerator)

    def _cost(self, name: str, accelerator: str) -> float:
        return self.costs_on.get(name, {}).get(accelerator, getattr(self, name))

    @property
    def move_seconds(self) -> float:
        """Seconds to stop the job and restore it on other accelerators."""
        return self.checkpoint_seconds + self.restore_seconds

    def types(self, cluster: Cluster) -> tuple[str, ...]:
        """Return the types of the cluster that the job can use and that have enough memory, the fastest first."""
        own = self.work.types()
        found = tuple(name for name in own if name in cluster.machines_of) if own else cluster.types
        if self.server_memory_gib and cluster.memory_of:
            found = tuple(name for name in found if self.has_room(cluster, name))
        if not self.memory_gib:
            return found
        sizes = {name: cluster.type_of(name).memory_gib for name in found}
        return tuple(name for name in found if not sizes[name] or sizes[name] >= self.memory_gib)

    def ideal(self, cluster: Cluster) -> Conditions:
        """Return the ideal conditions of the job alone: the tightest placement on its fastest type with enough room."""
        names = [name for name in self.types(cluster) if cluster.count_of[name] >= self.asks(name)]
        return tightest(self.asks(names[0]), cluster, names[0])

    def has_room(self, cluster: Cluster, accelerator: str) -> bool:
        """Return True if the job fits on the machines of a type when all are free: accelerators and memory."""
        return sum(self._rooms(cluster, accelerator).values()) >= self.asks(accelerator)

    def best_level(self, cluster: Cluster, accelerator: str) -> int:
        """Return the tightest level at which a type has enough accelerators and server memory for the job."""
        asked = self.asks(accelerator)
        if not self.server_memory_gib or not cluster.memory_of:
            return cluster.best_level(asked, accelerator)
        rooms, racks = self._rooms(cluster, accelerator), Counter[int]()
        if max(rooms.values()) >= asked:
            return MACHINE
        for machine, room in rooms.items():
            racks[cluster.rack_of[machine]] += room
        return RACK if max(racks.values()) >= asked else NETWORK

    def _rooms(self, cluster: Cluster, accelerator: str) -> dict[int, int]:
        """Return how many accelerators the job could hold on each machine of a type, if all were free."""
        need, left, rooms = self.need(accelerator), dict(cluster.memory_of), dict[int, int]()
        for i in sorted(cluster.machines_of[accelerator], key=lambda i: -cluster.machines[i].count):
            server = cluster.server_of[i]
            rooms[i] = need.room(cluster.machines[i].count, left.get(server, inf))
            if rooms[i] and server in left:
                left[server] -= need.memory(rooms[i])
        return rooms


def tightest(accelerators: int, cluster: Cluster, name: str, speed: float = 1.0) -> Conditions:
    """Return the conditions of a consolidated placement of a type, if all accelerators were free."""
    counts, missing = [], accelerators
    for size in cluster.sizes_of[name]:  # on the fewest machines
        if missing <= 0:
            break
        counts.append(min(size, missing))
        missing -= size
    level = cluster.best_level(accelerators, name)
    return Conditions(name, tuple(counts), level, cluster.network.congestion_at(level), speed)


@dataclass(slots=True, eq=False)
class JobState:
    """Job with its progress. Only the simulator or the live driver changes it.

    Attributes:
        done: Progress, in the unit of the job's `work`.
        saved: Progress at the job's last checkpoint.
        placement: Accelerators that the job holds; None while the job waits.
        conditions: Conditions under which the job runs; None while the job waits.
        ideal: Conditions of the job alone in a consolidated placement with as many accelerators of the same type.
        waiting_since: Time at which the job last began to wait.
        started_at: Time of the job's last start.
        drawn_since: Time of the last change of the job's power draw.
        power_share: Power draw under the caps of the job's machines, relative to that without caps.
        run_seconds: Seconds for which the job has held accelerators, over all starts.
        service_seconds: Accelerator-seconds that the job has held.
        ideal_seconds: Time of the same progress under ideal conditions.
        preemptions: Number of stops after which the job waited.
        migrations: Number of moves.
        overhead_left: Remaining seconds of starting or restoring.
        first_start: Time of the job's first start.
        end: Time at which the job will end if nothing changes.
        version: Number of changes of `end`; events with an earlier number are outdated.
    """

    job: Job
    done: float = 0.0
    saved: float = 0.0
    placement: Placement | None = None
    conditions: Conditions | None = None
    ideal: Conditions | None = None
    waiting_since: float = 0.0
    started_at: float = 0.0
    drawn_since: float = 0.0
    power_share: float = 1.0
    updated_at: float = 0.0
    run_seconds: float = 0.0
    service_seconds: float = 0.0
    ideal_seconds: float = 0.0
    starts: int = 0
    preemptions: int = 0
    migrations: int = 0
    overhead_left: float = 0.0
    first_start: float | None = None
    end: float = inf
    version: int = 0

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.job.name

    @property
    def held(self) -> int:
        """Number of accelerators that the job holds."""
        return sum(count for _, count in self.placement) if self.placement else 0

    def seconds_left(self, conditions: Conditions) -> float:
        """Return the remaining time of the job under these conditions, without the time to start."""
        return self.job.work.seconds_left(self.done, conditions)

    def service_seconds_at(self, now: float) -> float:
        """Return the accelerator-seconds that the job has held until a given time."""
        held = sum(self.conditions.counts) if self.conditions else 0
        return self.service_seconds + (now - self.updated_at) * held

    def advance_to(self, now: float) -> None:
        """Update the job's progress and times to a given time, under its current conditions."""
        if self.conditions is None or now <= self.updated_at:
            return
        elapsed = now - self.updated_at
        self.run_seconds += elapsed
        self.service_seconds += elapsed * sum(self.conditions.counts)
        begin = self.updated_at + self.overhead_left
        self.overhead_left = max(self.overhead_left - elapsed, 0.0)
        self.updated_at = now
        if now <= begin:
            return
        work, before, every = self.job.work, self.done, self.job.checkpoint_every_seconds
        kept_at = self.started_at + (now - self.started_at) // every * every
        if kept_at > begin:
            self.saved = work.advance(before, kept_at - begin, self.conditions)
        self.done = work.advance(before, now - begin, self.conditions)
        if self.ideal is not None:
            self.ideal_seconds += work.seconds_left(before, self.ideal) - work.seconds_left(self.done, self.ideal)
