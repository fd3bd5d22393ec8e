"""Training in this process."""

from collections.abc import Callable, Sequence
from typing import Any

from shunter.engine.executors.role import Executor
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.libraries import load_libraries
from shunter.engine.loop.interrupt import stopped_between_steps
from shunter.engine.loop.trainer import train
from shunter.engine.ranking.any_training import train_any_ranker
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.hardware.meters.meter import EnergyMeter, measure_energy
from shunter.hardware.types import Placement
from shunter.models.graph import GraphSpec


def trainer_of(job: TrainingJob[Any, Any, Any]) -> Callable[..., TrainResult[Any, Any, Any]]:
    """Return the function that trains a model of its kind; see `shunter.engine.executors.role.Executor.run`."""
    return train_any_ranker if isinstance(job.spec, GraphSpec) else train


class Here(Executor):
    """Trains in this process.

    Args:
        placement: Where it trains.
    """

    trains_here = True

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.moves: Sequence[str] = []

    def run(
        self, job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
    ) -> TrainResult[Any, Any, Any]:
        """Train a model of any kind; Ctrl-C, a cancelled flow and a time limit end it after a step, its state saved."""
        return stopped_between_steps(trainer_of(job))(job, hooks, checkpointing)

    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        """Train for the figures alone."""
        return train(job, hooks).figures

    def meter(self) -> EnergyMeter:
        """Meter of this machine."""
        load_libraries(self.placement.device)
        return measure_energy(self.placement.accelerator)
