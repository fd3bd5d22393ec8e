"""Board of a live cluster, built from the state of real machines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import MACHINE, NETWORK, AcceleratorType, Cluster, Machine, Placement
from shunter.extensions.fleet.job import ANYWHERE, Job, JobState, Need
from shunter.extensions.fleet.live.role import LiveMachine, Places

NOISE_GIB = 0.01  # smaller differences of a server's memory are ignored: Ray rounds


class LiveBoard(Board):
    """Schedule board of a live cluster: a process is placed on one machine, with enough cores, GPUs and memory."""

    def place(
        self,
        accelerators: int,
        accelerator: str,
        worst_level: int = NETWORK,
        *,
        need: Need = ANYWHERE,
        without: frozenset[int] = frozenset(),
    ) -> Placement | None:
        """Return the tightest free placement for a number of accelerators, which fragments the fewest free machines."""
        level = MACHINE if need.part is None else worst_level
        return super().place(accelerators, accelerator, level, need=need, without=without)

    def fill(
        self, accelerators: int, machines: Iterable[int], *, is_sorted: bool = False, need: Need = ANYWHERE
    ) -> Placement | None:
        """Return a free placement (see `Board.fill`); one process goes to the fullest machine on which it fits."""
        if need.part is not None:
            return super().fill(accelerators, machines, is_sorted=is_sorted, need=need)
        order = machines if is_sorted else sorted(machines, key=lambda i: (self.free[i], i))
        found = next((i for i in order if self.room(i, need) >= accelerators), None)
        return None if found is None else ((found, accelerators),)

    def _take_memory(self, machine: int, gib: float) -> None:
        """Subtract a job's memory from the free memory of its server, without a check: Ray decides if the job fits."""
        server = self.cluster.server_of[machine]
        if server in self.free_memory:
            self.free_memory[server] -= gib

    def withhold(self, machine: int) -> None:
        """Mark the free accelerators of a machine as unavailable; its running jobs continue."""
        self.free_of[self._types[machine]] -= self.free[machine]
        self.free[machine] = 0


def largest(machines: Iterable[Machine], job: Job, types: Iterable[str]) -> dict[str, int]:
    """Return the most accelerators of each type that a job can use on the machines.

    A job of one process uses one machine, a job of several processes all machines.
    """
    found = dict.fromkeys(types, 0)
    for machine in machines:
        kind = machine.accelerator
        if kind in found:
            need = job.need(kind)
            room = need.room(machine.count, machine.memory_gib or inf)
            found[kind] = max(found[kind], room) if need.part is None else found[kind] + room
    return found


class MachineRegistry:
    """Machines that were up at some time, in a fixed order; machines that are down keep their index."""

    def __init__(self, accelerators: Mapping[str, AcceleratorType]) -> None:
        self._accelerators = dict(accelerators)
        self._seen: dict[str, LiveMachine] = {}
        self._others: dict[str, int] = {}
        self._memory_of_others: dict[str, float] = {}
        self._doubted: dict[str, float] = {}
        self.up: frozenset[str] = frozenset()

    def update(self, machines: Sequence[LiveMachine]) -> tuple[frozenset[str], frozenset[str]]:
        """Record which machines are up; return the names of new and of lost machines."""
        up = frozenset(machine.name for machine in machines)
        came, went = up - self.up, self.up - up
        self._seen |= {machine.name: machine for machine in machines}
        self._doubted = {name: until for name, until in self._doubted.items() if name not in came}
        self.up = up
        return came, went

    def doubt(self, machine: str, until: float) -> None:
        """Give no new jobs to a machine until a time, because Ray detects the failure of a machine only later."""
        self._doubted[machine] = until

    def trust_again(self, now: float) -> bool:
        """Give jobs again to machines whose `doubt` has expired; return True if there were any."""
        over = [name for name, until in self._doubted.items() if until <= now]
        for name in over:
            del self._doubted[name]
        return bool(over)

    def record_others(self, machine: str, ours: int, our_memory_gib: float) -> bool:
        """Record how much of a machine other users occupy; return True if that has changed.

        Args:
            machine: Name of the machine.
            ours: Number of the machine's accelerators that our jobs hold.
            our_memory_gib: Memory that our jobs hold on the machine's server, including its other machines.
        """
        seen, before = self._seen[machine], (self._left(machine), self._memory_left(machine))
        self._others[machine] = max(seen.count - seen.free - ours, 0)
        others = max(seen.memory_gib - seen.free_memory_gib - our_memory_gib, 0.0)
        self._memory_of_others[seen.box] = others if others > NOISE_GIB else 0.0
        return (self._left(machine), self._memory_left(machine)) != before

    def beside(self, machine: str) -> list[str]:
        """Return the names of all machines on the same server as a machine, including the machine itself."""
        box = self._seen[machine].box
        return [name for name, one in self._seen.items() if one.box == box]

    def type_of(self, name: str) -> str:
        """Return the accelerator type of a machine."""
        return self._seen[name].accelerator

    def places(self, placement: Placement) -> Places:
        """Return the name of each machine of a placement, with the number of accelerators that the job holds on it."""
        names = list(self._seen)
        return tuple((names[machine], count) for machine, count in placement)

    def has_room(self, job: Job, cluster: Cluster) -> bool:
        """Return True if the machines that are up could run a job with what other users leave free."""
        left = [machine for machine in cluster.machines if machine.name in self.up and self._left(machine.name)]
        most = largest(left, job, job.types(cluster))
        return any(count >= job.asks(kind) for kind, count in most.items())

    @property
    def cluster(self) -> Cluster:
        """Return all machines, without the accelerators and memory that others use."""
        return self._cluster(lambda one: max(self._left(one.name), 1), lambda one: self._memory_left(one.name))

    @property
    def whole_cluster(self) -> Cluster:
        """Return all machines, including what others use."""
        return self._cluster(lambda one: one.count, lambda one: one.memory_gib)

    def _cluster(self, count: Callable[[LiveMachine], int], memory_gib: Callable[[LiveMachine], float]) -> Cluster:
        machines = [
            Machine(
                name=one.name,
                accelerator=one.accelerator,
                count=count(one),
                server=one.server or None,
                memory_gib=memory_gib(one),
            )
            for one in self._seen.values()
        ]
        return Cluster(machines=tuple(machines), accelerators=self._accelerators)

    def board(self, waiting: Iterable[JobState], running: Iterable[JobState], now: float) -> Board:
        """Return the schedule board for one decision of the policy; the longest waiting jobs come first."""
        board = LiveBoard(self.cluster)
        board.now = now
        for i, name in enumerate(self._seen):
            if name not in self.up or not self._left(name):
                board.lose(i)
        for state in running:
            placement, state.placement = state.placement, None
            assert placement is not None, f"{state.name} does not run"
            board.waiting[state.name] = state
            board.start(state, placement)
        board.touched.clear()
        waiting = list(waiting)
        board.has_priorities = len({state.job.priority for state in (*waiting, *board.running.values())}) > 1
        for i, name in enumerate(self._seen):
            if name in self._doubted:
                board.withhold(i)
        for state in waiting:
            board.waiting[state.name] = state
        return board

    def _left(self, name: str) -> int:
        return max(self._seen[name].count - self._others.get(name, 0), 0)

    def _memory_left(self, name: str) -> float:
        """Return the memory of a machine's server that others leave free; 0 if unknown."""
        seen = self._seen[name]
        return max(seen.memory_gib - self._memory_of_others.get(seen.box, 0.0), NOISE_GIB) if seen.memory_gib else 0.0
