"""A training as the scheduler sees it: when it comes, what it asks for, and how fast it is where."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol

from shunter.extensions.fleet.cluster import MACHINE, NETWORK, RACK, Cluster, Placement


class Conditions(NamedTuple):
    """Under what a job runs.

    Attributes:
        accelerator: Type of its accelerators.
        counts: How many on each of its machines.
        level: How far they lie apart.
        slowdown: Factor on the time of its communication, 1 where the network is its own.
        speed: Share of their speed that the accelerators reach: the slowest of its machines decides.
    """

    accelerator: str
    counts: tuple[int, ...]
    level: int
    slowdown: float = 1.0
    speed: float = 1.0


class Need(NamedTuple):
    """What a job asks of each machine on which it lies, beside accelerators.

    Attributes:
        part: Accelerators that stay together on one machine, see `Job.part`.
        memory_gib: Memory of the server for each of its processes; 0 if that is unknown.
    """

    part: int | None = None
    memory_gib: float = 0.0

    def memory(self, accelerators: int) -> float:
        """What so many accelerators of one machine take of its server's memory."""
        return self.memory_gib * (1 if self.part is None else accelerators // self.part)

    def room(self, free: int, memory_gib: float) -> int:
        """How many accelerators of a machine such a job could hold, of so many free ones and so much free memory."""
        if self.part is None:
            return free if self.memory_gib <= memory_gib else 0
        parts = free // self.part
        return self.part * (min(parts, int(memory_gib / self.memory_gib)) if self.memory_gib else parts)


ANYWHERE = Need()


class Work(Protocol):
    """How much there is to do and how long it takes; what is done is a number that the work itself defines.

    The simulator asks it whenever a job starts, stops, or its conditions change. All methods are pure.
    """

    def types(self) -> tuple[str, ...]:
        """Accelerator types that it runs on, the fastest first; empty: any, all alike."""
        ...

    def counts(self, asked: int) -> tuple[int, ...]:
        """Numbers of accelerators that it can run on, ascending; a rigid job runs on what it asked for alone."""
        ...

    def seconds_left(self, done: float, conditions: Conditions) -> float:
        """Time until the end from what is done."""
        ...

    def advance(self, done: float, seconds: float, conditions: Conditions) -> float:
        """What is done after so many seconds more."""
        ...


@dataclass(frozen=True, slots=True)
class Iterations:
    """So many equal iterations, each with its arithmetic and its communication.

    Attributes:
        count: Iterations to do.
        compute_seconds: Of one iteration by accelerator type; the type "" stands for any.
        communication_seconds: Of one iteration by accelerator type, within a machine, within a rack, and across. What
            a job does for the whole of the accelerators it asked for.
        speedups: By other numbers of accelerators that it can run on, how much faster its arithmetic is there than on
            what it asked for.
    """

    count: float
    compute_seconds: Mapping[str, float]
    communication_seconds: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    speedups: Mapping[int, float] = field(default_factory=dict)

    def types(self) -> tuple[str, ...]:
        """See `Work.types`."""
        names = [name for name in self.compute_seconds if name]
        return tuple(sorted(names, key=lambda name: self.iteration_seconds(Conditions(name, (1,), MACHINE))))

    def counts(self, asked: int) -> tuple[int, ...]:
        """See `Work.counts`."""
        return tuple(sorted({asked, *self.speedups}))

    def iteration_seconds(self, conditions: Conditions) -> float:
        """Time of one iteration."""
        name = conditions.accelerator if conditions.accelerator in self.compute_seconds else ""
        communication = self.communication_seconds.get(name)
        waits = communication[conditions.level] * conditions.slowdown if communication else 0.0
        speed = conditions.speed * self.speedups.get(sum(conditions.counts), 1.0) if self.speedups else conditions.speed
        return self.compute_seconds[name] / speed + waits

    def seconds_left(self, done: float, conditions: Conditions) -> float:
        """See `Work.seconds_left`."""
        return max(self.count - done, 0.0) * self.iteration_seconds(conditions)

    def advance(self, done: float, seconds: float, conditions: Conditions) -> float:
        """See `Work.advance`."""
        return min(done + seconds / self.iteration_seconds(conditions), self.count)


@dataclass(frozen=True, slots=True)
class Job:
    """One training.

    Attributes:
        name: Its name, once in a trace.
        arrival_seconds: When it is submitted.
        accelerators: How many it asks for, all of one type.
        accelerators_on: How many on which type, where they are others: four cores, or one GPU.
        work: What there is to do.
        start_seconds: From its first start until its first iteration.
        checkpoint_seconds: What saving its state takes when it is stopped.
        restore_seconds: What taking it up again takes.
        checkpoint_every_seconds: How often it saves its state while it runs; an outage costs what came after.
        preemptible: Whether it may be stopped at all.
        weight: Its share where a policy divides the cluster.
        deadline_seconds: From its arrival until when it should have ended; None if there is no hurry.
        memory_gib: What it needs on each of its accelerators; 0 if that is unknown.
        server_memory_gib: What each of its processes needs of its server's own memory, which all that run there share;
            0 if that is unknown.
        priority: Jobs of a higher one go first under policies that keep an order; the others go by `weight`.
        part: Accelerators that stay together on one machine, of which several machines may hold some: those of one
            process of a training in many. None: of a simulated job any part may, of a live one all stay together.
        costs_on: By `start_seconds`, `checkpoint_seconds` and `restore_seconds` what they are on which accelerator
            type, where they differ; the fields hold their means.
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
        """How many accelerators of a type it asks for."""
        return self.accelerators_on.get(accelerator, self.accelerators) if self.accelerators_on else self.accelerators

    def part_on(self, accelerator: str) -> int | None:
        """The accelerators of a type that stay together, see `part`."""
        if self.part is None or not self.accelerators_on:
            return self.part
        return self.asks(accelerator) * self.part // self.accelerators

    def need(self, accelerator: str) -> Need:
        """What it asks of each machine of a type on which it lies."""
        if self.part is None and not self.server_memory_gib:
            return ANYWHERE
        return Need(self.part_on(accelerator), self.server_memory_gib)

    def starts_in(self, accelerator: str) -> float:
        """What its first start takes on a type."""
        return self._cost("start_seconds", self.start_seconds, accelerator)

    def moves_in(self, accelerator: str) -> float:
        """What stopping it, and taking it up again on a type, takes; as if it had been on that type before."""
        saving = self._cost("checkpoint_seconds", self.checkpoint_seconds, accelerator)
        return saving + self._cost("restore_seconds", self.restore_seconds, accelerator)

    def _cost(self, name: str, mean: float, accelerator: str) -> float:
        known = self.costs_on.get(name)
        return mean if known is None else known.get(accelerator, mean)

    @property
    def move_seconds(self) -> float:
        """What stopping it and taking it up elsewhere takes."""
        return self.checkpoint_seconds + self.restore_seconds

    def types(self, cluster: Cluster) -> tuple[str, ...]:
        """Types of the cluster that it can use, the fastest first; those whose memory is too small are left out."""
        own = self.work.types()
        found = tuple(name for name in own if name in cluster.machines_of) if own else cluster.types
        if self.server_memory_gib and cluster.memory_of:
            found = tuple(name for name in found if self.has_room(cluster, name))
        if not self.memory_gib:
            return found
        sizes = {name: cluster.type_of(name).memory_gib for name in found}
        return tuple(name for name in found if not sizes[name] or sizes[name] >= self.memory_gib)

    def ideal(self, cluster: Cluster) -> Conditions:
        """What it would run under alone: the tightest placement on its fastest type that is large enough."""
        names = [name for name in self.types(cluster) if cluster.count_of[name] >= self.asks(name)]
        return tightest(self.asks(names[0]), cluster, names[0])

    def has_room(self, cluster: Cluster, accelerator: str) -> bool:
        """Whether the machines of a type, were they all free, have the accelerators and the memory for it."""
        return sum(self._rooms(cluster, accelerator).values()) >= self.asks(accelerator)

    def best_level(self, cluster: Cluster, accelerator: str) -> int:
        """The tightest level at which a type has the accelerators, and its servers the memory, that it asks for."""
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
        """What it could hold of each machine of a type at once, were all free; the largest of a server come first."""
        need, left, rooms = self.need(accelerator), dict(cluster.memory_of), dict[int, int]()
        for i in sorted(cluster.machines_of[accelerator], key=lambda i: -cluster.machines[i].count):
            server = cluster.server_of[i]
            rooms[i] = need.room(cluster.machines[i].count, left.get(server, inf))
            if rooms[i] and server in left:
                left[server] -= need.memory(rooms[i])
        return rooms


def tightest(accelerators: int, cluster: Cluster, name: str, speed: float = 1.0) -> Conditions:
    """Conditions of so many accelerators of a type side by side, were they all free."""
    level = cluster.best_level(accelerators, name)
    return Conditions(name, spread(accelerators, cluster, name), level, cluster.network.congestion_at(level), speed)


def spread(accelerators: int, cluster: Cluster, name: str) -> tuple[int, ...]:
    """Counts of the fewest machines of a type that hold so many accelerators, were they all free."""
    counts, missing = [], accelerators
    for size in cluster.sizes_of[name]:
        if missing <= 0:
            break
        counts.append(min(size, missing))
        missing -= size
    return tuple(counts)


@dataclass(slots=True, eq=False)
class JobState:
    """A job and how far it is; changed by the simulator, or by what watches the real cluster, and by nobody else.

    Attributes:
        job: The job.
        done: What is done, in the units of its work.
        saved: What its last checkpoint holds.
        placement: Where it runs; None while it waits.
        conditions: Under what it runs; None while it waits.
        ideal: What it would run under on as many accelerators of the same type, side by side and alone.
        waiting_since: When it last began to wait.
        started_at: When it last was started.
        drawn_since: Since when it runs at the power that it draws now.
        power_share: What it draws under the caps of its machines, as a share of what it would draw without.
        run_seconds: How long it has held accelerators, all its starts together.
        service_seconds: The same times the number of its accelerators.
        ideal_seconds: What the same progress would have taken under ideal conditions.
        starts: How often it was started.
        preemptions: How often it was stopped to wait.
        migrations: How often it was moved.
        overhead_left: Seconds of starting or restoring before it goes on.
        first_start: When it first was started.
        end: When it will end if nothing changes.
        version: Counts the changes of its end, so that an end that was announced before is known to be out of date.
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
        """How many accelerators it holds."""
        return sum(count for _, count in self.placement) if self.placement else 0

    def seconds_left(self, conditions: Conditions) -> float:
        """Time until its end if it ran under these conditions from now on, without what starting takes."""
        return self.job.work.seconds_left(self.done, conditions)

    def service_seconds_at(self, now: float) -> float:
        """What it has been given until now: seconds times accelerators."""
        return self.service_seconds + (
            (now - self.updated_at) * sum(self.conditions.counts) if self.conditions else 0.0
        )

    def advance_to(self, now: float) -> None:
        """Bring its figures up to a moment, under the conditions it runs under."""
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


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a job of data-parallel towers and shared tables sends in one iteration.

    Attributes:
        allreduce_bytes: Gradients that are summed over all.
        alltoall_bytes: Rows of embeddings that are exchanged, forward; as much goes back.
        buckets: Messages that the gradients are sent in.
        overlapped_seconds: Of the backward pass that hides the sum of the gradients.
    """

    allreduce_bytes: float = 0.0
    alltoall_bytes: float = 0.0
    buckets: int = 1
    overlapped_seconds: float = 0.0

    def seconds(self, accelerators: int, cluster: Cluster) -> tuple[float, float, float]:
        """Time of one iteration's communication at each level: ring all-reduce and two all-to-alls."""
        others = accelerators - 1
        found = []
        for level in range(NETWORK + 1):
            bandwidth = cluster.network.bytes_per_second[level]
            latency = cluster.network.latency_seconds[level]
            ring = 2 * others / accelerators * self.allreduce_bytes / bandwidth + 2 * others * latency * self.buckets
            exchange = 0.0
            if self.alltoall_bytes:
                exchange = 2 * (others / accelerators * self.alltoall_bytes / bandwidth + others * latency)
            found.append(max(ring + exchange - self.overlapped_seconds, 0.0))
        return found[0], found[1], found[2]
