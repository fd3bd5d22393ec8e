"""What a policy sees and moves: who waits, who runs, what is free. The simulator and a live cluster keep one each."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from sys import maxsize

from shunter.extensions.fleet.cluster import MACHINE, NETWORK, RACK, Cluster, Placement
from shunter.extensions.fleet.job import ANYWHERE, Conditions, JobState, Need

MEMORY_SLACK_GIB = 1e-6  # sums of floats: what is given back in another order may miss a little


class Board:
    """The state of a cluster at one moment.

    A policy calls `start` and `stop`; each shows at once in `free`, `waiting` and `running`, and is carried out by
    whoever owns the board as soon as the policy has returned. A job that is stopped and started in one decision moves;
    one that comes back to where it was has never been stopped.

    Attributes:
        cluster: The machines.
        now: Time in seconds.
        free: Free accelerators by machine; none where a machine is away.
        free_memory: Free memory in GiB by the number of each server whose memory is known.
        waiting: Jobs that wait, in the order in which they came.
        running: Jobs that run.
        caps: Cap on the power of each machine, 0 for none, else one of its type's `power_caps`, from 1.
        has_priorities: Whether any job may have another priority than the others; where none has, nobody sorts by it.
        paces: Share of its own speed that each machine computes at; less than 1 while something slows it down.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.now = 0.0
        self.free = [machine.count for machine in cluster.machines]
        self.free_of = dict(cluster.count_of)
        self.free_memory = dict(cluster.memory_of)
        self.waiting: dict[str, JobState] = {}
        self.running: dict[str, JobState] = {}
        self.touched: dict[str, tuple[JobState, Placement | None]] = {}
        self.caps = [0] * len(cluster.machines)
        self.paces = [1.0] * len(cluster.machines)
        self.changed_machines: set[int] = set()
        self.has_priorities = False
        self._types = [machine.accelerator for machine in cluster.machines]
        self._away: set[int] = set()
        self._there = dict(cluster.count_of)

    def start(self, state: JobState, placement: Placement) -> None:
        """Let a waiting job run.

        Args:
            state: The job.
            placement: Where, with as many accelerators of one type as are free there.
        """
        assert state.name in self.waiting, f"{state.name} does not wait"
        self.touched.setdefault(state.name, (state, state.placement))
        self._take(state, placement, 1)
        del self.waiting[state.name]
        state.placement = placement
        self.running[state.name] = state

    def stop(self, state: JobState) -> None:
        """Let a running job wait; its accelerators are free at once."""
        assert state.placement is not None, f"{state.name} does not run"
        self.touched.setdefault(state.name, (state, state.placement))
        self._take(state, state.placement, -1)
        del self.running[state.name]
        state.placement = None
        self.waiting[state.name] = state

    def release(self, state: JobState) -> None:
        """Take a job that has ended off the board."""
        assert state.placement is not None, f"{state.name} does not run"
        self._take(state, state.placement, -1)
        del self.running[state.name]

    def lose(self, machine: int) -> list[JobState]:
        """A machine goes away; returns the jobs that were stopped by it."""
        hit = [state for state in self.running.values() if any(i == machine for i, _ in state.placement or ())]
        for state in hit:
            self.stop(state)
        if machine not in self._away:  # outages may overlap
            self._away.add(machine)
            self._there[self._types[machine]] -= self.cluster.machines[machine].count
        self.free_of[self._types[machine]] -= self.free[machine]
        self.free[machine] = 0
        return hit

    def regain(self, machine: int) -> None:
        """A machine comes back, with nothing on it."""
        if machine not in self._away:
            return
        self._away.remove(machine)
        self._there[self._types[machine]] += self.cluster.machines[machine].count
        self.free[machine] = self.cluster.machines[machine].count
        self.free_of[self._types[machine]] += self.free[machine]

    def cap(self, machine: int, level: int) -> None:
        """Set the cap on the power of a machine; those that run on it go on at another speed."""
        if level == self.caps[machine]:
            return
        assert 0 <= level <= len(self.cluster.type_of(self._types[machine]).power_caps), f"no cap {level}"
        self.caps[machine] = level
        self.changed_machines.add(machine)

    def pace(self, machine: int, speed: float) -> None:
        """A machine becomes slower, or fast again."""
        self.paces[machine] = speed
        self.changed_machines.add(machine)

    def power_share(self, placement: Placement) -> float:
        """What accelerators at work draw under the caps of their machines, as a share of what they draw without."""
        caps = [(self.caps[machine], count) for machine, count in placement]
        if not any(level for level, _ in caps):
            return 1.0
        kind = self.cluster.type_of(self._types[placement[0][0]])
        return sum(kind.cap(level)[0] * count for level, count in caps) / sum(count for _, count in caps)

    def is_settled(self, state: JobState) -> bool:
        """Whether a running job is where it was before this decision."""
        return state.conditions is not None and self.touched.get(state.name, (state, state.placement))[1] == (
            state.placement
        )

    def there(self) -> dict[str, int]:
        """Accelerators of each type on machines that are there, free or not: a copy to count down."""
        return dict(self._there)

    def is_away(self, machine: int) -> bool:
        """Whether a machine is away."""
        return machine in self._away

    def conditions(self, placement: Placement, slowdown: float = 1.0) -> Conditions:
        """Under what a job would run at a placement."""
        level = self.cluster.level(placement)
        counts = tuple(count for _, count in placement)
        slowdown *= self.cluster.network.congestion_at(level)
        return Conditions(self._types[placement[0][0]], counts, level, slowdown, self._speed(placement))

    def place(
        self,
        accelerators: int,
        accelerator: str,
        worst_level: int = NETWORK,
        best_level: int = MACHINE,
        *,
        need: Need = ANYWHERE,
        without: frozenset[int] = frozenset(),
    ) -> Placement | None:
        """The tightest place for so many accelerators of a type, and where the fewest others are broken up.

        Args:
            accelerators: How many.
            accelerator: Their type.
            worst_level: How far apart they may lie.
            best_level: The tightest level to look for; those below are known to be taken.
            need: What the job asks of each machine beside accelerators, see `shunter.extensions.fleet.job.Job.need`.
            without: Machines of which nothing is taken.

        Returns:
            The placement, or None where none is free.
        """
        if self.free_of.get(accelerator, 0) < accelerators:
            return None
        machines, rack_order = self.cluster.machines_of[accelerator], self.cluster.rack_order_of[accelerator]
        if without:
            machines, rack_order = ([i for i in one if i not in without] for one in (machines, rack_order))
        room, rack_of = self._room_of(machines, need), self.cluster.rack_of
        if best_level == MACHINE:
            found = _tightest_machine(accelerators, rack_order, room)
            if found is not None:
                return ((found, accelerators),)
        if worst_level == MACHINE:
            return None
        racks: dict[int, int] = {}
        for i in machines:
            racks[rack_of[i]] = racks.get(rack_of[i], 0) + room[i]
        if best_level <= RACK:
            for _, rack in sorted((total, rack) for rack, total in racks.items() if total >= accelerators):
                found = self.fill(accelerators, (i for i in machines if rack_of[i] == rack), need=need)
                if found is not None:  # two parts of one server may have no room for both of a job's
                    return found
        if worst_level == RACK:
            return None
        order = sorted(machines, key=lambda i: (-racks[rack_of[i]], rack_of[i], -self.free[i], i))
        return self.fill(accelerators, order, is_sorted=True, need=need)

    def fill(
        self, accelerators: int, machines: Iterable[int], *, is_sorted: bool = False, need: Need = ANYWHERE
    ) -> Placement | None:
        """So many accelerators from the machines with most free ones, or in the order given."""
        order = machines if is_sorted else sorted(machines, key=lambda i: (-self.free[i], i))
        taken, missing = [], accelerators
        spoken_for: dict[int, float] = {}  # memory of servers of which two machines are parts
        for i in order:
            if missing <= 0:
                break
            count = min(self.room(i, need, spoken_for.get(self.cluster.server_of[i], 0.0)), missing)
            if need.part is not None:
                count -= count % need.part
            if count > 0:
                if need.memory_gib:
                    server = self.cluster.server_of[i]
                    spoken_for[server] = spoken_for.get(server, 0.0) + need.memory(count)
                taken.append((i, count))
                missing -= count
        return tuple(taken) if missing <= 0 else None

    def room(self, machine: int, need: Need, spoken_for: float = 0.0) -> int:
        """How many of a machine's free accelerators a job could hold.

        Args:
            machine: The machine.
            need: What the job asks of it beside accelerators.
            spoken_for: Memory of its server in GiB that is not to be had, beside what jobs hold.
        """
        if not need.memory_gib or not self.free_memory:
            free = self.free[machine]
            return free if need.part is None else free - free % need.part
        left = self.free_memory.get(self.cluster.server_of[machine], inf) + MEMORY_SLACK_GIB - spoken_for
        return need.room(self.free[machine], left)

    def _room_of(self, machines: Iterable[int], need: Need) -> Sequence[int] | Mapping[int, int]:
        return self.free if need == ANYWHERE else {i: self.room(i, need) for i in machines}

    def _speed(self, placement: Placement) -> float:
        kind = self.cluster.type_of(self._types[placement[0][0]])
        return min(self.paces[machine] * kind.cap(self.caps[machine])[1] for machine, _ in placement)

    def _take(self, state: JobState, placement: Placement, sign: int) -> None:
        need = state.job.need(self._types[placement[0][0]])
        for machine, count in placement:
            if need.memory_gib and self.free_memory:
                self._take_memory(machine, sign * need.memory(count))
            if machine in self._away:
                continue
            left = self.free[machine] - sign * count
            assert 0 <= left <= self.cluster.machines[machine].count, f"machine {machine} has not {count} free"
            self.free[machine] = left
            self.free_of[self._types[machine]] -= sign * count

    def _take_memory(self, machine: int, gib: float) -> None:
        server = self.cluster.server_of[machine]
        if server in self.free_memory:
            left = self.free_memory[server] - gib
            name = self.cluster.machines[machine].box
            assert left >= -MEMORY_SLACK_GIB * (1 + len(self.running)), f"server {name} has not {gib} GiB free"
            self.free_memory[server] = left


def _tightest_machine(
    accelerators: int, machines: Iterable[int], room: Sequence[int] | Mapping[int, int]
) -> int | None:
    """The machine that has enough room and least of it, the first of these; None where none has enough."""
    best, least = None, maxsize
    for i in machines:
        if accelerators <= room[i] < least:
            if room[i] == accelerators:
                return i
            best, least = i, room[i]
    return best
