"""A board laid out from what is on real machines."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from scheduler.board import Board
from scheduler.cluster import MACHINE, NETWORK, AcceleratorType, Cluster, Machine, Placement
from scheduler.job import JobState
from scheduler.live.role import LiveMachine, Places


class LiveBoard(Board):
    """A board on which each process stays within one machine: a job of one process, and each part of one of many."""

    def place(
        self,
        accelerators: int,
        accelerator: str,
        worst_level: int = NETWORK,
        best_level: int = MACHINE,
        *,
        part: int | None = None,
    ) -> Placement | None:
        """See `Board.place`."""
        if part is not None:
            return super().place(accelerators, accelerator, worst_level, best_level, part=part)
        if best_level > MACHINE:
            return None
        return super().place(accelerators, accelerator, MACHINE)

    def fill(
        self, accelerators: int, machines: Iterable[int], *, is_sorted: bool = False, part: int | None = None
    ) -> Placement | None:
        """See `Board.fill`; of one process the smallest machine that is large enough, so that others stay whole."""
        if part is not None:
            return super().fill(accelerators, machines, is_sorted=is_sorted, part=part)
        order = machines if is_sorted else sorted(machines, key=lambda i: (self.free[i], i))
        found = next((i for i in order if self.free[i] >= accelerators), None)
        return None if found is None else ((found, accelerators),)

    def withhold(self, machine: int) -> None:
        """Give nothing of what is free on a machine; what runs there goes on."""
        self.free_of[self._types[machine]] -= self.free[machine]
        self.free[machine] = 0


def largest(machines: Iterable[tuple[str, int]], types: Sequence[str], part: int | None) -> int:
    """The most accelerators of one type that a job can hold: on one machine, or in parts on several.

    Args:
        machines: Type and number of each.
        types: Types that the job runs on.
        part: Accelerators of it that stay together; None keeps all on one machine.
    """
    found: Counter[str] = Counter()
    for kind, count in machines:
        if kind in types:
            found[kind] = max(found[kind], count) if part is None else found[kind] + count - count % part
    return max(found.values(), default=0)


class Ground:
    """The machines that have been seen, in an order that stays; those that are away keep their place."""

    def __init__(self, accelerators: Mapping[str, AcceleratorType]) -> None:
        self._accelerators = dict(accelerators)
        self._seen: dict[str, LiveMachine] = {}
        self._others: dict[str, int] = {}
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

    def note_others(self, machine: str, ours: int) -> bool:
        """Take in what others hold of a machine, of which we hold so much; returns whether that has changed."""
        seen, before = self._seen[machine], self._left(machine)
        self._others[machine] = max(seen.count - seen.free - ours, 0)
        return self._left(machine) != before

    def index(self, name: str) -> int:
        """Number of a machine."""
        return list(self._seen).index(name)

    def places(self, placement: Placement) -> Places:
        """The machines of a placement, by name."""
        names = list(self._seen)
        return tuple((names[machine], count) for machine, count in placement)

    def most(self, types: Sequence[str], part: int | None) -> int:
        """The largest number of accelerators that the machines that are up could give to a job of these types.

        Args:
            types: Types that it runs on.
            part: Accelerators of it that stay together; None keeps all on one machine.
        """
        return largest(((self._seen[name].accelerator, self._left(name)) for name in self.up), types, part)

    @property
    def cluster(self) -> Cluster:
        """All machines, with what others leave of them."""
        machines = [
            Machine(name=name, accelerator=one.accelerator, count=max(self._left(name), 1))
            for name, one in self._seen.items()
        ]
        return Cluster(machines=tuple(machines), accelerators=self._accelerators)

    @property
    def whole_cluster(self) -> Cluster:
        """All machines, whoever holds them."""
        machines = [
            Machine(name=name, accelerator=one.accelerator, count=one.count) for name, one in self._seen.items()
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
