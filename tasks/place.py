"""Where placements are carried out: what tuning and training ask of this machine, and of a cluster instead."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from engine.results import TrainResult
from hardware.types import EnergyReading, Placement


class Reading(Protocol):
    """An energy meter that can be read at any time."""

    @property
    def reading(self) -> EnergyReading:
        """What has been used since it was entered."""
        ...


class Place(Protocol):
    """A place to train: the steps that train know no other difference between here and elsewhere."""

    def training(self, placement: Placement, checkpoints: Path | None) -> Callable[..., TrainResult]:
        """What trains at a placement, with the arguments and the result of `engine.trainer.train`.

        Args:
            placement: one of this place.
            checkpoints: folder of the training's checkpoints; None keeps none.
        """
        ...

    def meter(self, placement: Placement) -> AbstractContextManager[Reading]:
        """Meter of what a training at the placement draws."""
        ...
