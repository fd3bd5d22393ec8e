"""State of a cluster that a policy reads and changes, and the interface of a policy."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Protocol

from shunter.extensions.fleet.cluster import MACHINE, NETWORK, RACK, Cluster, Placement
from shunter.extensions.fleet.job import ANYWHERE, Conditions, JobState, Need

MEMORY_SLACK_GIB = 1e-6  # tolerance: sums of floats depend on the order in which memory is released


class Board:
    """State of a cluster at one moment, simulated or live.

    A policy calls `start` and `stop`. Each call updates `free`, `waiting` and `running` at once; the owner of the board
    carries the changes out after the policy has returned. A job that is stopped and started in one decision migrates.
    If it is started on its old accelerators, it is not interrupted.

    Attributes:
        cluster: The machines.
        now: Time in seconds.
        free: Free accelerators by machine; 0 for a machine that is down.
        free_memory: Free memory in GiB, by index of each server whose memory is known.
        waiting: Waiting jobs, in order of arrival.
        running: Running jobs.
        caps: Power cap of each machine: 0 for none, otherwise an index, counted from 1, of its type's `power_caps`.
        has_priorities: True if jobs may differ in priority; otherwise policies need not sort by it.
        speeds: Relative speed of each machine; less than 1 during a slowdown.
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
        self.speeds = [1.0] * len(cluster.machines)
        self.changed_machines: set[int] = set()
        self.has_priorities = False
        self._types = [machine.accelerator for machine in cluster.machines]
        self._away: set[int] = set()
        self._there = dict(cluster.count_of)

    def start(self, state: JobState, placement: Placement) -> None:
        """Start a waiting job on free accelerators, all of one type."""
        assert state.name in self.waiting, f"{state.name} does not wait"
        self.touched.setdefault(state.name, (state, state.placement))
        self._take(state, placement, 1)
        del self.waiting[state.name]
        state.placement = placement
        self.running[state.name] = state

    def stop(self, state: JobState) -> None:
        """Stop a running job, which then waits; its accelerators are free at once."""
        assert state.placement is not None, f"{state.name} does not run"
        self.touched.setdefault(state.name, (state, state.placement))
        self._take(state, state.placement, -1)
        del self.running[state.name]
        state.placement = None
        self.waiting[state.name] = state

    def release(self, state: JobState) -> None:
        """Remove a completed job from `running`, and free its accelerators."""
        assert state.placement is not None, f"{state.name} does not run"
        self._take(state, state.placement, -1)
        del self.running[state.name]

    def lose(self, machine: int) -> list[JobState]:
        """Mark a machine as down, stop its jobs, and return them."""
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
        """Mark a machine as up again, with no jobs on it."""
        if machine not in self._away:
            return
        self._away.remove(machine)
        self._there[self._types[machine]] += self.cluster.machines[machine].count
        self.free[machine] = self.cluster.machines[machine].count
        self.free_of[self._types[machine]] += self.free[machine]

    def cap(self, machine: int, level: int) -> None:
        """Set the power cap of a machine, which changes the speed of its jobs."""
        if level == self.caps[machine]:
            return
        assert 0 <= level <= len(self.cluster.type_of(self._types[machine]).power_caps), f"no cap {level}"
        self.caps[machine] = level
        self.changed_machines.add(machine)

    def pace(self, machine: int, speed: float) -> None:
        """Set the relative speed of a machine."""
        self.speeds[machine] = speed
        self.changed_machines.add(machine)

    def power_share(self, placement: Placement) -> float:
        """Return the power that busy accelerators draw under their machines' caps, relative to that without caps."""
        caps = [(self.caps[machine], count) for machine, count in placement]
        if not any(level for level, _ in caps):
            return 1.0
        kind = self.cluster.type_of(self._types[placement[0][0]])
        return sum(kind.cap(level)[0] * count for level, count in caps) / sum(count for _, count in caps)

    def is_settled(self, state: JobState) -> bool:
        """Return True if a running job has the same placement as before this decision."""
        return state.conditions is not None and self.touched.get(state.name, (state, state.placement))[1] == (
            state.placement
        )

    def live_counts(self) -> dict[str, int]:
        """Return a new dictionary: the number of accelerators, free or not, on machines that are up, by type."""
        return dict(self._there)

    def is_down(self, machine: int) -> bool:
        """Return True if a machine is down."""
        return machine in self._away

    def groups(self, accelerator: str, level: int) -> list[frozenset[int]]:
        """Return the sets of live machines within which a placement has the level: each machine, each rack, or all."""
        found: dict[int, set[int]] = {}
        for i in self.cluster.machines_of[accelerator]:
            if not self.is_down(i):
                group = i if level == MACHINE else self.cluster.rack_of[i] if level == RACK else 0
                found.setdefault(group, set()).add(i)
        return [frozenset(one) for one in found.values()]

    def current_type(self, state: JobState) -> str | None:
        """Return the accelerator type on which a job runs; None while it waits."""
        return None if state.placement is None else self._types[state.placement[0][0]]

    def conditions(self, placement: Placement, slowdown: float = 1.0) -> Conditions:
        """Return what determines a job's speed at a placement: accelerators, distance level, network and power cap.

        Args:
            placement: Accelerators by machine.
            slowdown: Factor on the communication time by other jobs in the network.
        """
        level, name = self.cluster.level(placement), self._types[placement[0][0]]
        kind = self.cluster.type_of(name)
        speed = min(self.speeds[machine] * kind.cap(self.caps[machine])[1] for machine, _ in placement)
        slowdown *= self.cluster.network.congestion_at(level)
        return Conditions(name, tuple(count for _, count in placement), level, slowdown, speed)

    def place(
        self,
        accelerators: int,
        accelerator: str,
        worst_level: int = NETWORK,
        *,
        need: Need = ANYWHERE,
        without: frozenset[int] = frozenset(),
    ) -> Placement | None:
        """Return the tightest free placement for a number of accelerators, which fragments the fewest free machines.

        Args:
            accelerators: Number of accelerators.
            accelerator: Accelerator type.
            worst_level: Loosest allowed level.
            need: Other needs of the job on each machine, see `shunter.extensions.fleet.job.Job.need`.
            without: Machines that must not be used.
        """
        if self.free_of.get(accelerator, 0) < accelerators:
            return None
        machines, rack_order = self.cluster.machines_of[accelerator], self.cluster.rack_order_of[accelerator]
        if without:
            machines, rack_order = ([i for i in one if i not in without] for one in (machines, rack_order))
        room: Sequence[int] | Mapping[int, int]
        room = self.free if need == ANYWHERE else {i: self.room(i, need) for i in machines}
        rack_of = self.cluster.rack_of
        if fitting := [i for i in rack_order if room[i] >= accelerators]:
            return ((min(fitting, key=room.__getitem__), accelerators),)
        if worst_level == MACHINE:
            return None
        racks: dict[int, int] = {}
        for i in machines:
            racks[rack_of[i]] = racks.get(rack_of[i], 0) + room[i]
        for _, rack in sorted((total, rack) for rack, total in racks.items() if total >= accelerators):
            found = self.fill(accelerators, (i for i in machines if rack_of[i] == rack), need=need)
            if found is not None:  # two parts of one server may lack the memory for both parts of a job
                return found
        if worst_level == RACK:
            return None
        order = sorted(machines, key=lambda i: (-racks[rack_of[i]], rack_of[i], -self.free[i], i))
        return self.fill(accelerators, order, is_sorted=True, need=need)

    def fill(
        self, accelerators: int, machines: Iterable[int], *, is_sorted: bool = False, need: Need = ANYWHERE
    ) -> Placement | None:
        """Return a placement that fills one machine after the other; None if they have too few free accelerators.

        Machines with most free accelerators come first, or the given order is used (`is_sorted`).
        """
        order = machines if is_sorted else sorted(machines, key=lambda i: (-self.free[i], i))
        taken, missing = [], accelerators
        spoken_for: dict[int, float] = {}  # memory by server with two machines in this placement
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
        """Return how many free accelerators of a machine a job could hold; `spoken_for` is used memory in GiB."""
        if not need.memory_gib or not self.free_memory:
            free = self.free[machine]
            return free if need.part is None else free - free % need.part
        left = self.free_memory.get(self.cluster.server_of[machine], inf) + MEMORY_SLACK_GIB - spoken_for
        return need.room(self.free[machine], left)

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


class Policy(Protocol):
    """Scheduling policy: decides repeatedly which jobs run where.

    `decide` is called at every arrival, end, outage and return, and at the time that it requested; with
    `round_seconds`, only at multiples of `round_seconds`. It moves jobs with `Board.start` and `Board.stop` and keeps
    no reference to the board. A policy never reads a clock: `Board.now` is the time, simulated or real.
    """

    @property
    def name(self) -> str:
        """Name of the policy on the command line and in MLflow."""
        ...

    @property
    def round_seconds(self) -> float | None:
        """Length of a scheduling round in seconds; None for a policy that reacts to events."""
        ...

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs of the cluster.

        Args:
            board: State of the cluster.

        Returns:
            Time of the next decision even if nothing happens; None if there is no need.
        """
        ...
