"""Executor that trains in this process."""

from collections.abc import Callable, Sequence
from typing import Any

from shunter.engine.executors.role import Executor
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.libraries import load_libraries
from shunter.engine.loop.interrupt import stopped_between_steps
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.hardware.meters.meter import EnergyMeter, measure_energy
from shunter.hardware.types import Placement
from shunter.model_families import PROBLEMS, problem_of


def trainer_of(job: TrainingJob[Any, Any, Any]) -> Callable[..., TrainResult[Any, Any, Any]]:
    """Return the function that trains a job's kind of model: click model or graph model."""
    return PROBLEMS.load_part(problem_of(job.spec.family), "trainer")


class InProcessExecutor(Executor):
    """Executor that runs training jobs in the calling process.

    Args:
        placement: Placement of the training.
    """

    trains_in_process = True

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.moves: Sequence[str] = []

    def run(
        self, job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
    ) -> TrainResult[Any, Any, Any]:
        """Train a model of any kind; Ctrl-C, a cancelled flow or a time limit ends it after a step, its state saved."""
        return stopped_between_steps(trainer_of(job))(job, hooks, checkpointing)

    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        """Train a model and return its metrics and times, without its weights."""
        return train(job, hooks).figures

    def meter(self) -> EnergyMeter:
        """Return an energy meter of this machine."""
        load_libraries(self.placement.device)
        return measure_energy(self.placement.accelerator)
