"""Where placements are carried out: what tuning and training ask of this machine, and of a cluster instead."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from engine.config import Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.results import TrainingFigures, TrainResult
from hardware.types import EnergyReading, Placement
from models.spec import ModelSpec


class Reading(Protocol):
    """An energy meter that can be read at any time."""

    @property
    def reading(self) -> EnergyReading:
        """What has been used since it was entered."""
        ...


class Slot(Protocol):
    """Where one training runs after another, while others run elsewhere; only their figures are wanted."""

    @property
    def placement(self) -> Placement:
        """Where it trains."""
        ...

    def meter(self) -> AbstractContextManager[Reading]:
        """Meter of what its trainings draw while it is entered."""
        ...

    def train(
        self,
        dataset: Dataset,
        spec: ModelSpec,
        hyperparameters: Hyperparameters,
        schedule: Schedule,
        *,
        should_stop: Callable[[], str | None] | None = None,
        **options: Any,
    ) -> TrainingFigures:
        """Train as `engine.loop.trainer.train` does; `should_stop` and other functions are called in this process.

        What a function raises ends the training and reaches the caller.
        """
        ...

    def close(self) -> None:
        """End it; a training under way in another thread ends with KeyboardInterrupt there."""
        ...


class Place(Protocol):
    """A place to train: the steps that train know no other difference between here and elsewhere."""

    def training(self, placement: Placement, checkpoints: Path | None) -> Callable[..., TrainResult]:
        """What trains at a placement, with the arguments and the result of `engine.loop.trainer.train`.

        Args:
            placement: one of this place.
            checkpoints: folder of the training's checkpoints; None keeps none.
        """
        ...

    def meter(self, placement: Placement) -> AbstractContextManager[Reading]:
        """Meter of what a training at the placement draws."""
        ...

    def slots(self, placement: Placement, count: int) -> Sequence[Slot]:
        """Slots for several trainings at a time, on accelerators like that of the placement.

        Args:
            placement: one of this place.
            count: how many.
        """
        ...
