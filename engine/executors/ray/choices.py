"""Where else on a cluster a training may run: when its node dies, and when a better one is or becomes free."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shunter.engine.executors.ray.group import Seat
from shunter.engine.executors.role import Choice
from shunter.engine.executors.watch import Going
from shunter.hardware.devices.nodes import free_resources
from shunter.hardware.types import Placement

SLACK = 1e-6  # of a resource, which Ray counts in ten thousandths
# Where a training goes on: what it takes in all at each place that is free, by name, where it is, and how it goes.
BetterPlace = Callable[[Mapping[str, float], str, Going], str | None]


def nowhere(totals: Mapping[str, float], here: str, going: Going) -> None:
    """The `BetterPlace` of a training that stays."""


@dataclass(frozen=True)
class Choices:
    """What a flow says of where its trainings may run.

    Attributes:
        all: The placements, best first.
        better_place: Decides whether a running training moves.
        may_begin_elsewhere: Whether one begins on another place that is free while the best is not.
        memory_bytes: What a process needs of its node's memory, as predicted, which Ray then keeps for it; 0 where
            nobody can say.
    """

    all: Sequence[Choice] = field(default=())
    better_place: BetterPlace = nowhere
    may_begin_elsewhere: bool = False
    memory_bytes: int = 0

    def alike(self, placement: Placement) -> list[Choice]:
        """The best choice on each other node with the same batches and precision."""
        found: dict[str | None, Choice] = {}
        for one in self.all:
            other = one.placement
            same = (other.batch_size, other.precision) == (placement.batch_size, placement.precision)
            if same and other.node != placement.node:
                found.setdefault(other.node, one)
        return list(found.values())

    def totals(self, placement: Placement) -> dict[str | None, float]:
        """What the whole job takes on each node by itself, on that of a placement there; infinite where unknown."""
        there = placement.model_copy(update={"processes": 1})
        own = next((one.total for one in self.all if one.placement == there), math.inf)
        return {one.placement.node: one.total for one in self.alike(placement)} | {placement.node: own}


class Elsewhere:
    """Finds the places of a cluster that are free, and the better ones among them.

    Args:
        choices: What the flow says.
        seats: The processes of a placement, each with its node.
    """

    def __init__(self, choices: Choices, seats: Callable[[Placement], list[Seat]]) -> None:
        self.choices, self._seats = choices, seats

    def begin(self, placement: Placement) -> Placement | None:
        """Where a training begins whose placement is taken; None where it is not, or nothing else is free."""
        if not self.choices.may_begin_elsewhere or are_free(self._seats(placement)):
            return None
        return next((one for one in self._others(placement) if are_free(self._seats(one))), None)

    def better(self, here: Placement, seats: Sequence[Seat], going: Going) -> Placement | None:
        """Where a training goes on that gives back where it is; None where it stays.

        Args:
            here: Its placement.
            seats: Its processes, of which all wait for the slowest.
            going: How it goes.
        """
        totals = self.choices.totals(here)
        found = {one.accelerator: one for one in self._others(here)}
        free = {name: there for name, one in found.items() if are_free(there := self._seats(one), seats)}
        taking = {name: _slowest(there, totals) for name, there in free.items()}
        finite = {name: total for name, total in taking.items() if math.isfinite(total)}
        own = _slowest(seats, totals)
        if not finite or not math.isfinite(own) or own <= 0:
            return None
        name = self.choices.better_place({**finite, here.accelerator: own}, here.accelerator, going)
        return None if name is None else found[name]

    def _others(self, placement: Placement) -> list[Placement]:
        processes = {"processes": placement.processes}
        return [one.placement.model_copy(update=processes) for one in self.choices.alike(placement)]


def _slowest(seats: Sequence[Seat], totals: Mapping[str | None, float]) -> float:
    return max(totals.get(seat.node.name, math.inf) for seat in seats)


def are_free(seats: Sequence[Seat], released: Sequence[Seat] = ()) -> bool:
    """Whether Ray has at this moment what processes take.

    Args:
        seats: Where they would be.
        released: Those that would be given back for it.
    """
    free = free_resources()
    asked, given = _by_node(seats), _by_node(released)
    return all(
        count <= free.get(node, {}).get(name, 0.0) + given[node, name] + SLACK for (node, name), count in asked.items()
    )


def _by_node(seats: Sequence[Seat]) -> dict[tuple[str, str], float]:
    """What they take of each resource of each node; nothing of all others."""
    counted: dict[tuple[str, str], float] = defaultdict(float)
    for seat in seats:
        for name, count in seat.resources.items():
            counted[seat.node.node_id, name] += count
    return counted
