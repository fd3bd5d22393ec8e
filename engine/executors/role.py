"""Roles of executors: training in this process, in a separate process, in a process group, or on a cluster node.

The flow chooses a placement, and a `ComputeTarget` returns an `Executor` for it, which runs one training run after
another:

    with executor.meter() as meter:                       # measures time and energy
        executor.run(job, hooks, checkpointing)
    meter.reading
    executor.close()
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.compilation import Trial
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.probes.measurement import Measurement
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.hardware.types import EnergyReading, HardwareProfile, Placement
from shunter.registry import Entry, Registry, check_package
from shunter.requests import ClusterRequest


class Reading(Protocol):
    """Energy meter that can be read at any time."""

    @property
    def reading(self) -> EnergyReading:
        """Return the energy used since the meter was entered."""
        ...


class Executor(ABC):
    """Base class that runs training jobs, one after another, at one placement.

    The hooks are always called in this process. An exception of a hook ends the training and reaches the caller, as
    does a `ShunterError` of the training.

    Attributes:
        placement: Placement of the training.
        eager_because: Reason why the executor's steps are never compiled; None if they may be.
        trains_in_process: Whether the executor trains in this process: passes can then be measured on its steps, and
            threads can be adapted (the hook `adapt`).
        trial: Method of measuring the executor's steps before a training run.
        moves: Sentences on each move of a training run to another placement of this machine.
    """

    placement: Placement
    eager_because: str | None = None
    trains_in_process: bool = False
    trial: Trial = Trial()
    moves: Sequence[str] = ()

    @abstractmethod
    def run(self, job: ClickJob, hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None) -> TrainResult:
        """Train, or resume from a checkpoint, as `shunter.engine.loop.trainer.train` does.

        On an interrupt, the state after the current step is saved, if `checkpointing` is given; then the method raises.

        Args:
            job: Training job; its execution is that of the placement.
            hooks: Functions that are called in this process.
            checkpointing: Folder and frequency of its checkpoints on this machine; None saves no state.
        """

    @abstractmethod
    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        """Train and return metrics and times only; no state or weights are saved, so an interrupt is immediate."""

    @abstractmethod
    def meter(self) -> AbstractContextManager[Reading]:
        """Return a meter of the energy that training runs of this executor use while the meter is entered."""

    def close(self) -> None:
        """End the executor; a training run in another thread raises KeyboardInterrupt there."""
        return


class ComputeTarget(Protocol):
    """Machine or cluster that provides the executors of training runs."""

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> Executor:
        """Return the executor of one training run.

        Args:
            placement: Placement on this target.
            checkpoints: Folder of its checkpoints; a training run begun by several processes is resumed by several.
        """
        ...

    def executors(self, placement: Placement, count: int) -> Sequence[Executor]:
        """Return executors for parallel training runs, on accelerators like that of the placement.

        Raises:
            RequestError: There are fewer such accelerators.
        """
        ...


@dataclass(frozen=True)
class Choice:
    """Placement that keeps every limit.

    Attributes:
        placement: The placement.
        total: Hours, kilowatt hours or money of the whole job at the placement, whichever the request minimises.
    """

    placement: Placement
    total: float


class Cluster(ComputeTarget, Protocol):
    """Nodes that train instead of this machine.

    Attributes:
        moves: Sentences that say which training runs moved to another node, and why.
        nodes_together: Names of the nodes of each multi-process training run, in the order of their first use.
    """

    moves: list[str]
    nodes_together: list[str]

    def profiles(self, processes: int = 1) -> list[HardwareProfile]:
        """Return the profiles of all accelerators; for several processes, with collective operations between nodes."""
        ...

    def measure(self, dataset: Dataset, spec: Any, placement: Placement, steps: int) -> Measurement | None:
        """Measure some steps of a training run on the node of a placement."""

    def prefer(
        self,
        choices: Sequence[Choice],
        *,
        select_upgrade: Callable[..., str | None] | None = None,
        may_begin_elsewhere: bool = False,
        memory_bytes: int = 0,
    ) -> None:
        """Set the placements to which training runs of this cluster may move.

        Args:
            choices: Possible placements, the best first.
            select_upgrade: Decides whether a running training job moves to a better node; None: it never does.
            may_begin_elsewhere: Whether a run may begin at another free placement while the best is in use.
            memory_bytes: Predicted memory of a process on its node; 0 if unknown.
        """

    def meter_with(self, process_meter: Any) -> Any:
        """Return a meter that adds the energy of the cluster's nodes to that of `process_meter`, a local meter."""


# `process_group` is a function of the placement that returns an `Executor`; `cluster` one of the address and the
# resource that returns a context manager of a `Cluster`.
EXECUTORS = Registry(
    "executor",
    {
        "process_group": Entry(target="shunter.extensions.distributed.executors.process_group:group_of_processes"),
        "cluster": Entry(target="shunter.extensions.distributed.executors.ray.cluster:open_cluster"),
    },
    group="shunter.executors",
)


@contextmanager
def requested_cluster(request: ClusterRequest) -> Iterator[Cluster | None]:
    """Connect to the cluster of a request for the length of the block; yield None if the request names no cluster.

    Raises:
        HardwareError: No cluster answers, or none of its nodes has the requested resource.
        MissingPackageError: Ray is not installed.
        MissingExtensionError: No installed extension can use a cluster.
    """
    if request.cluster is None:
        yield None
        return
    check_package("ray", "Ray", "cluster")
    with EXECUTORS.load("cluster")(request.cluster, request.cluster_resource) as cluster:
        yield cluster
