"""Processes of training runs on the nodes of a cluster: worker slots, alternative placements, executor and energy."""

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shunter.engine.executors.energy import Ledger, LedgerMeter
from shunter.engine.executors.messages import Done, Task, with_model
from shunter.engine.executors.move_monitor import TrainingProgress
from shunter.engine.executors.role import Choice, Executor
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.engine.stopping import StopReason
from shunter.errors import RequestError
from shunter.extensions.distributed.links.nodes import ClusterNode, free_resources
from shunter.extensions.distributed.training import Division
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.types import EnergyReading, Placement

TRIALS = ("trials at a time", "--parallel-trials")
PROCESSES = ("processes", "--processes")
SLACK = 1e-6  # tolerance of a resource, which Ray counts in units of 1e-4
# Returns where a training run continues. Arguments: its total at each free accelerator, its accelerator, its progress.
SelectUpgrade = Callable[[Mapping[str, float], str, TrainingProgress], str | None]


@dataclass(frozen=True)
class WorkerSlot:
    """Worker slot of one process of a training run.

    Attributes:
        placement: Accelerator of the process on the node, with the threads of this process only.
        shared_by: Number of processes of the training run on the node.
        memory_bytes: Predicted memory on the node; 0 if unknown.
    """

    node: ClusterNode
    placement: Placement
    shared_by: int
    memory_bytes: int = 0

    @property
    def resources(self) -> dict[str, float]:
        """Return the resources that Ray reserves; processes that share fewer cores than their number get fractions.

        The memory is at most an equal share of the memory that the node was started with (`ray start --memory`).
        """
        cores = min(float(self.placement.threads), self.node.resources.get("CPU", 0.0) / self.shared_by)
        gpus = float(self.placement.device.startswith("cuda"))
        memory = min(self.memory_bytes, int(self.node.resources.get("memory", 0.0)) // self.shared_by)
        return {name: count for name, count in (("CPU", cores), ("GPU", gpus), ("memory", memory)) if count}

    @property
    def cores(self) -> int | None:
        """Return the number of cores whose idle power is attributed to this process; None for all cores."""
        if self.shared_by == 1:
            return None
        return max(1, next(one.cores for one in self.node.accelerators if one.kind == "cpu") // self.shared_by)


def spread(
    placement: Placement, count: int, nodes: Mapping[str, ClusterNode], counted: tuple[str, str] = TRIALS
) -> list[tuple[Placement, int]]:
    """Return the placement of each of `count` parallel training runs, and how many share its node's processor.

    All get the same accelerator model and number of threads, because their measurements are compared. Processors are
    divided if there are more training runs than nodes; a GPU takes one training run. The chosen placement comes first.
    For the error message, `counted` is a plural noun for the training runs, and the option that sets their number.

    Raises:
        RequestError: there are fewer GPUs of that model than training runs.
    """
    chosen = nodes[str(placement.node)]
    model = next(found.model for found in chosen.accelerators if found.name == placement.device)
    alike = [
        f"{accelerator.name}@{node.name}"
        for node in sorted(nodes.values(), key=lambda node: node.name != chosen.name)
        for accelerator in node.accelerators
        if accelerator.model == model
    ]
    alike.sort(key=lambda name: name != placement.accelerator)
    if placement.device != "cpu" and count > len(alike):
        raise RequestError(
            f"Each of the {count} {counted[0]} needs a GPU, but the cluster has only {len(alike)} of the "
            f"model {model}: lower {counted[1]} to {len(alike)}."
        )
    shared_by = -(-count // len(alike))
    threads = max(1, placement.threads // shared_by)
    update = {"threads": threads} if placement.device == "cpu" else {}
    return [
        (placement.model_copy(update={"accelerator": alike[slot % len(alike)], **update}), shared_by)
        for slot in range(count)
    ]


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
    """Return True if Ray has the resources of worker slots, if those of the slots in `released` are released first."""
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


class _Sender(Protocol):
    """Protocol of the cluster that runs an executor's training jobs on its nodes."""

    nodes: dict[str, ClusterNode]

    def train(self, task: Task, placement: Placement, hooks: Hooks, ledger: Ledger) -> Done: ...


class RayExecutor(Executor):
    """Executor that trains on a node of the cluster, and on another node if that node dies.

    The ledger records the energy of the training runs; `shared_by` executors share the node, including this one.
    """

    eager_because = "the training runs on another machine"

    def __init__(
        self,
        cluster: _Sender,
        placement: Placement,
        ledger: Ledger,
        *,
        shared_by: int = 1,
        division: Division | None = None,
    ) -> None:
        self.placement, self._division = placement, division
        self._cluster, self._ledger = cluster, ledger
        self._cores = WorkerSlot(cluster.nodes[str(placement.node)], placement, shared_by).cores
        self._closed = threading.Event()

    def run(
        self, job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
    ) -> TrainResult[Any, Any, Any]:
        """Train a model on a cluster node; see `shunter.engine.executors.role.Executor.run`.

        Raises:
            NodeLostError: Several nodes in succession were lost.
            KeyboardInterrupt: The executor was closed, or Ctrl-C.
        """
        task = Task(job=job, checkpointing=checkpointing, cores=self._cores, division=self._division)
        return with_model(job, self._train(task, hooks))

    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        """Train a model on a cluster node, and return its metrics and times without weights; raises as `run`."""
        return self._train(Task(job=job, wants_model=False, cores=self._cores), hooks).figures

    def meter(self) -> LedgerMeter:
        """Return a meter of the energy that training runs of this executor use while the meter is entered."""
        return LedgerMeter(self._ledger)

    def close(self) -> None:
        """End the running training run."""
        self._closed.set()

    def _train(self, task: Task, hooks: Hooks) -> Done:
        def should_stop() -> StopReason | None:
            if self._closed.is_set():
                raise KeyboardInterrupt
            return hooks.should_stop() if hooks.should_stop else None

        return self._cluster.train(task, self.placement, replace(hooks, should_stop=should_stop), self._ledger)


class FlowMeter:
    """Energy meter of the flow's process (running meter `here`) and its nodes; a `shunter.engine.stopping.Meter`."""

    def __init__(self, here: EnergyMeter, ledger: Ledger) -> None:
        self._here, self._ledger = here, ledger

    @property
    def reading(self) -> EnergyReading:
        """Return the summed energy of this process and the nodes; estimated or unavailable if one of them is."""
        here, there = self._here.reading, self._ledger.total_with_branches()
        source = f"this process: {here.source}; nodes: {there.source}"
        if here.joules is None or there.joules is None:
            return EnergyReading(
                joules=None, seconds=here.seconds, mean_watts=None, method="unavailable", source=source
            )
        method = "measured" if here.method == there.method == "measured" else "estimated"
        measured = here.measured_joules + there.measured_joules
        return EnergyReading.of(here.joules + there.joules, here.seconds, method, source, measured_joules=measured)

    def seconds_so_far(self) -> float:
        """Return the seconds since the flow's meter was entered."""
        return self._here.seconds_so_far()

    def joules_so_far(self) -> float | None:
        """Return the energy that this process and the nodes have used so far, in joules."""
        here, there = self._here.joules_so_far(), self._ledger.total_with_branches().joules
        return None if here is None or there is None else here + there
