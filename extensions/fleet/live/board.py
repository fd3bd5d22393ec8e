"""A board laid out from what is on real machines."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import MACHINE, NETWORK, AcceleratorType, Cluster, Machine, Placement
from shunter.extensions.fleet.job import ANYWHERE, Job, JobState, Need
from shunter.extensions.fleet.live.role import LiveMachine, Places

NOISE_GIB = 0.01  # less than that of a server is nothing: Ray rounds


class LiveBoard(Board):
    """A board on which each process stays within one machine: a job of one process, and each part of one of many."""

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
        """See `Board.place`."""
        if need.part is not None:
            return super().place(accelerators, accelerator, worst_level, best_level, need=need, without=without)
        if best_level > MACHINE:
            return None
        return super().place(accelerators, accelerator, MACHINE, need=need, without=without)

    def fill(
        self, accelerators: int, machines: Iterable[int], *, is_sorted: bool = False, need: Need = ANYWHERE
    ) -> Placement | None:
        """See `Board.fill`; of one process the smallest machine that is large enough, so that others stay whole."""
        if need.part is not None:
            return super().fill(accelerators, machines, is_sorted=is_sorted, need=need)
        order = machines if is_sorted else sorted(machines, key=lambda i: (self.free[i], i))
        found = next((i for i in order if self.room(i, need) >= accelerators), None)
        return None if found is None else ((found, accelerators),)

    def _take_memory(self, machine: int, gib: float) -> None:
        """See `Board._take_memory`; what others hold is known a moment late, and Ray's ledger is what counts."""
        server = self.cluster.server_of[machine]
        if server in self.free_memory:
            self.free_memory[server] -= gib

    def withhold(self, machine: int) -> None:
        """Give nothing of what is free on a machine; what runs there goes on."""
        self.free_of[self._types[machine]] -= self.free[machine]
        self.free[machine] = 0


def largest(machines: Iterable[Machine], job: Job, types: Iterable[str]) -> dict[str, int]:
    """The most accelerators of each type that a job can hold: on one machine, or in parts on several.

    Args:
        machines: The machines.
        job: The job, whose processes each stay on one machine.
        types: Types that it runs on.
    """
    found = dict.fromkeys(types, 0)
    for machine in machines:
        kind = machine.accelerator
        if kind in found:
            need = job.need(kind)
            room = need.room(machine.count, machine.memory_gib or inf)
            found[kind] = max(found[kind], room) if need.part is None else found[kind] + room
    return found


class Ground:
    """The machines that have been seen, in an order that stays; those that are away keep their place."""

    def __init__(self, accelerators: Mapping[str, AcceleratorType]) -> None:
        self._accelerators = dict(accelerators)
        self._seen: dict[str, LiveMachine] = {}
        self._others: dict[str, int] = {}
        self._memory_of_others: dict[str, float] = {}
        self._doubted: dict[str, float] = {}
        self.up: frozenset[str] = frozenset()

    def look(self, machines: Sequence[LiveMachine]) -> tuple[frozenset[str], frozenset[str]]:
        """Take in which machines are up; returns those that have come, and those that have gone."""
        up = frozenset(machine.name for machine in machines)
        came, went = up - self.up, self.up - up
        self._seen |= {machine.name: machine for machine in machines}
        self._doubted = {name: until for name, until in self._doubted.items() if name not in came}
        self.up = up
        return came, went

    def doubt(self, machine: str, until: float) -> None:
        """Give nothing to a machine for a while: one that has died is known to be gone only some time later."""
        self._doubted[machine] = until

    def trust_again(self, now: float) -> bool:
        """Forget doubts whose time is over; returns whether there were any."""
        over = [name for name, until in self._doubted.items() if until <= now]
        for name in over:
            del self._doubted[name]
        return bool(over)

    def note_others(self, machine: str, ours: int, our_memory_gib: float = 0.0) -> bool:
        """Take in what others hold of a machine, of which we hold so much; returns whether that has changed.

        Args:
            machine: The machine.
            ours: Accelerators of it that our jobs hold.
            our_memory_gib: What our jobs hold of its server's memory, on whichever part of it.
        """
        seen, before = self._seen[machine], (self._left(machine), self._memory_left(machine))
        self._others[machine] = max(seen.count - seen.free - ours, 0)
        others = max(seen.memory_gib - seen.free_memory_gib - our_memory_gib, 0.0)
        self._memory_of_others[seen.box] = others if others > NOISE_GIB else 0.0
        return (self._left(machine), self._memory_left(machine)) != before

    def beside(self, machine: str) -> list[str]:
        """The machines of a machine's server, itself included."""
        box = self._seen[machine].box
        return [name for name, one in self._seen.items() if one.box == box]

    def index(self, name: str) -> int:
        """Number of a machine."""
        return list(self._seen).index(name)

    def type_of(self, name: str) -> str:
        """Type of a machine's accelerators."""
        return self._seen[name].accelerator

    def places(self, placement: Placement) -> Places:
        """The machines of a placement, by name."""
        names = list(self._seen)
        return tuple((names[machine], count) for machine, count in placement)

    def has_room(self, job: Job, cluster: Cluster) -> bool:
        """Whether the machines that are up could take a job, were what others leave of them free.

        Args:
            job: The job.
            cluster: See `cluster`.
        """
        left = [machine for machine in cluster.machines if machine.name in self.up and self._left(machine.name)]
        most = largest(left, job, job.types(cluster))
        return any(count >= job.asks(kind) for kind, count in most.items())

    @property
    def cluster(self) -> Cluster:
        """All machines, with what others leave of them."""
        machines = [
            Machine(
                name=name,
                accelerator=one.accelerator,
                count=max(self._left(name), 1),
                server=one.server or None,
                memory_gib=self._memory_left(name),
            )
            for name, one in self._seen.items()
        ]
        return Cluster(machines=tuple(machines), accelerators=self._accelerators)

    @property
    def whole_cluster(self) -> Cluster:
        """All machines, whoever holds them."""
        machines = [
            Machine(
                name=name,
                accelerator=one.accelerator,
                count=one.count,
                server=one.server or None,
                memory_gib=one.memory_gib,
            )
            for name, one in self._seen.items()
        ]
        return Cluster(machines=tuple(machines), accelerators=self._accelerators)

    def lay_out(self, waiting: Iterable[JobState], running: Iterable[JobState], now: float) -> Board:
        """The board at one moment.

        Args:
            waiting: Jobs that wait, in the order in which they began to.
            running: Jobs that run, with their placements.
            now: The time in seconds.
        """
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
        for name in self._doubted:
            board.withhold(self.index(name))
        for state in waiting:
            board.waiting[state.name] = state
        return board

    def _left(self, name: str) -> int:
        return max(self._seen[name].count - self._others.get(name, 0), 0)

    def _memory_left(self, name: str) -> float:
        """Memory of a machine's server that others leave; 0 where nobody counts it."""
        seen = self._seen[name]
        return max(seen.memory_gib - self._memory_of_others.get(seen.box, 0.0), NOISE_GIB) if seen.memory_gib else 0.0
