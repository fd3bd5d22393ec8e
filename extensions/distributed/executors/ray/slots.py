"""Processes of training runs on the nodes of a cluster: their worker slots, their executor, and their energy."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shunter.engine.executors.energy import Ledger, LedgerMeter
from shunter.engine.executors.messages import Done, Task, with_model
from shunter.engine.executors.role import Executor
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.engine.stopping import StopReason
from shunter.errors import RequestError
from shunter.extensions.distributed.links.nodes import ClusterNode
from shunter.extensions.distributed.training import Division
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.types import EnergyReading, Placement


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


TRIALS = ("trials at a time", "--parallel-trials")
PROCESSES = ("processes", "--processes")


def spread(
    placement: Placement, count: int, nodes: Mapping[str, ClusterNode], counted: tuple[str, str] = TRIALS
) -> list[tuple[Placement, int]]:
    """Return the placement of each of `count` parallel training runs, and how many share its node's processor.

    All get the same accelerator model and number of threads, because their measurements are compared. Processors are
    divided if there are more training runs than nodes; a GPU takes one training run.

    Args:
        placement: the chosen placement, which comes first.
        count: number of training runs.
        nodes: Nodes of the cluster, by name.
        counted: Plural noun for the training runs and option that sets their number, for the error message.

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


class _Sender(Protocol):
    """Protocol of the cluster that runs an executor's training jobs on its nodes."""

    nodes: dict[str, ClusterNode]

    def train(self, task: Task, placement: Placement, hooks: Hooks, ledger: Ledger) -> Done: ...


class RayExecutor(Executor):
    """Executor that trains on a node of the cluster, and on another node if that node dies.

    Args:
        cluster: Cluster on whose nodes the training runs.
        placement: First placement of the training runs.
        ledger: Record of the energy of the training runs.
        shared_by: Number of executors that share the node, including this one.
        division: Division of the tables among processes.
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
        cores = next(found.cores for found in cluster.nodes[str(placement.node)].accelerators if found.kind == "cpu")
        self._cores = max(1, cores // shared_by) if shared_by > 1 else None
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
    """Energy meter of the flow's process and of its training nodes; a `shunter.engine.stopping.Meter`.

    Args:
        here: Running meter of this process.
    """

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
