"""Alternative placements on a cluster: after a node's death, and when a better node is or becomes free."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shunter.engine.executors.move_monitor import TrainingProgress
from shunter.engine.executors.role import Choice
from shunter.extensions.distributed.executors.ray.slots import WorkerSlot
from shunter.extensions.distributed.links.nodes import free_resources
from shunter.hardware.types import Placement

SLACK = 1e-6  # tolerance of a resource, which Ray counts in units of 1e-4
# Returns where a training run continues. Arguments: its total at each free accelerator, its accelerator, its progress.
SelectUpgrade = Callable[[Mapping[str, float], str, TrainingProgress], str | None]


def never_moves(totals: Mapping[str, float], here: str, progress: TrainingProgress) -> None:
    """Return None; a `SelectUpgrade` for training runs that never move."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Placements of a cluster on which a flow's training runs may run, and the search for free and better ones.

    Attributes:
        slots: Function that returns the worker slots of a placement.
        all: The placements, best first.
        select_upgrade: Decides whether a running job moves.
        may_begin_elsewhere: Whether a training run may begin on another free placement while the best is in use.
        memory_bytes: Predicted memory of a process on its node, which Ray then reserves; 0 if unknown.
    """

    slots: Callable[[Placement], list[WorkerSlot]]
    all: Sequence[Choice] = ()
    select_upgrade: SelectUpgrade = never_moves
    may_begin_elsewhere: bool = False
    memory_bytes: int = 0

    def alike(self, placement: Placement) -> list[Choice]:
        """Return the best choice on each other node, among those with the placement's batch size and precision."""
        found: dict[str | None, Choice] = {}
        for one in self.all:
            other = one.placement
            same = (other.batch_size, other.precision) == (placement.batch_size, placement.precision)
            if same and other.node != placement.node:
                found.setdefault(other.node, one)
        return list(found.values())

    def totals(self, placement: Placement) -> dict[str | None, float]:
        """Return the predicted seconds of the whole job on each node; infinite if unknown."""
        there = placement.model_copy(update={"processes": 1})
        own = next((one.total for one in self.all if one.placement == there), math.inf)
        return {one.placement.node: one.total for one in self.alike(placement)} | {placement.node: own}

    def begin(self, placement: Placement) -> Placement | None:
        """Return the alternative first placement of a run; None if its own placement is free, or no alternative is."""
        if not self.may_begin_elsewhere or are_free(self.slots(placement)):
            return None
        return next((one for one in self._others(placement) if are_free(self.slots(one))), None)

    def better(self, here: Placement, slots: Sequence[WorkerSlot], progress: TrainingProgress) -> Placement | None:
        """Return the placement to which a training run moves from its current one; None if it stays.

        Args:
            here: Current placement of the training run.
            slots: Current worker slots; all processes wait for the slowest.
            progress: Progress of the training run.
        """
        totals = self.totals(here)
        found = {one.accelerator: one for one in self._others(here)}
        free = {name: there for name, one in found.items() if are_free(there := self.slots(one), slots)}
        taking = {name: _slowest(there, totals) for name, there in free.items()}
        finite = {name: total for name, total in taking.items() if math.isfinite(total)}
        own = _slowest(slots, totals)
        if not finite or not math.isfinite(own) or own <= 0:
            return None
        name = self.select_upgrade({**finite, here.accelerator: own}, here.accelerator, progress)
        return None if name is None else found[name]

    def _others(self, placement: Placement) -> list[Placement]:
        processes = {"processes": placement.processes}
        return [one.placement.model_copy(update=processes) for one in self.alike(placement)]


def _slowest(slots: Sequence[WorkerSlot], totals: Mapping[str | None, float]) -> float:
    return max(totals.get(slot.node.name, math.inf) for slot in slots)


def are_free(slots: Sequence[WorkerSlot], released: Sequence[WorkerSlot] = ()) -> bool:
    """Return True if Ray currently has the resources of the processes.

    Args:
        slots: Worker slots.
        released: Worker slots that would be released first.
    """
    free = free_resources()
    asked, given = _by_node(slots), _by_node(released)
    return all(
        count <= free.get(node, {}).get(name, 0.0) + given[node, name] + SLACK for (node, name), count in asked.items()
    )


def _by_node(slots: Sequence[WorkerSlot]) -> dict[tuple[str, str], float]:
    """Return the requested amount by node and resource; 0 for resources that are not requested."""
    counted: dict[tuple[str, str], float] = defaultdict(float)
    for slot in slots:
        for name, count in slot.resources.items():
            counted[slot.node.node_id, name] += count
    return counted
