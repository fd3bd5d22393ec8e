"""Where a training runs: in this process, in one of its own, in a group of processes, or on a node of a cluster.

The flow chooses a placement, a `Place` gives an `Executor` for it, and the executor runs one training after another:

    executor.meter() is entered -> executor.run(job, hooks, checkpointing) -> the meter is read -> executor.close()
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.compilation import Trial
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.probes.measurement import Measurement
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.hardware.types import EnergyReading, HardwareProfile, Placement


class Reading(Protocol):
    """An energy meter that can be read at any time."""

    @property
    def reading(self) -> EnergyReading:
        """What has been used since it was entered."""
        ...


class Executor(ABC):
    """Runs trainings, one after another, at one placement.

    Wherever that is, the hooks are called in this process: what one raises ends the training and reaches the caller,
    and so does an error of ours that the training raises there.

    Attributes:
        placement: Where it trains.
        eager_because: Why its steps are never compiled; None where they may be.
        trains_here: Whether it trains in this process, so that passes can be tried on its steps, and threads may follow
            them (the hook `adapt`).
        trial: How its steps are measured before a training.
        moves: Sentences that say where on this machine its training went on, and why.
    """

    placement: Placement
    eager_because: str | None = None
    trains_here: bool = False
    trial: Trial = Trial()
    moves: Sequence[str] = ()

    @abstractmethod
    def run(self, job: ClickJob, hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None) -> TrainResult:
        """Train to the end, or on from a checkpoint, as `shunter.engine.loop.trainer.train` does.

        Interrupted, it saves the state after the current step where there is a checkpointing, and raises.

        Args:
            job: The training; its execution is that of the placement.
            hooks: Functions that are called here.
            checkpointing: Where the state is kept on this machine; None keeps none.
        """

    @abstractmethod
    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        """Train for the figures alone: neither state nor weights are kept, so an interrupt waits for nothing."""

    @abstractmethod
    def meter(self) -> AbstractContextManager[Reading]:
        """Meter of what its trainings draw while it is entered."""

    def close(self) -> None:
        """End it; a training under way in another thread ends with KeyboardInterrupt there."""
        return


class Place(Protocol):
    """Machines to train on: the steps that train know no other difference between this one and a cluster."""

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> Executor:
        """The executor of one training.

        Args:
            placement: One of this place.
            checkpoints: Folder of its checkpoints: one that was begun by many processes is gone on with by them.
        """
        ...

    def executors(self, placement: Placement, count: int) -> Sequence[Executor]:
        """Executors for several trainings at a time, on accelerators like that of the placement.

        Args:
            placement: One of this place.
            count: Number of executors.

        Raises:
            RequestError: There are fewer such accelerators.
        """
        ...


@dataclass(frozen=True)
class Choice:
    """Placement that keeps every limit.

    Attributes:
        placement: The placement.
        total: Hours, kilowatt hours or money of the whole job there: the quantity that the request minimises.
    """

    placement: Placement
    total: float


class Cluster(Place, Protocol):
    """Nodes that train instead of this machine.

    Attributes:
        moves: Sentences that say which trainings moved to another node, and why.
        nodes_together: Nodes that held processes of one training, in the order of their first.
    """

    moves: list[str]
    nodes_together: list[str]

    def profiles(self, processes: int = 1) -> list[HardwareProfile]:
        """Return the profiles of all accelerators, with collectives between nodes for several processes."""
        ...

    def measure(self, dataset: Dataset, spec: Any, placement: Placement, steps: int) -> Measurement | None:
        """Measure some steps of a training on the node of a placement."""
        ...

    def prefer(
        self,
        choices: Sequence[Choice],
        *,
        better_place: Callable[..., str | None] | None = None,
        may_begin_elsewhere: bool = False,
        memory_bytes: int = 0,
    ) -> None:
        """Name the placements to which a training may move, the best first."""
        ...

    def meter_with(self, here: Any) -> Any:
        """Return a meter of this process, whose meter is `here`, and of the nodes."""
        ...
