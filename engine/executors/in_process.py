"""Executor that trains in this process."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.role import Executor
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.libraries import load_libraries
from shunter.engine.loop.interrupt import stopped_between_steps
from shunter.engine.loop.trainer import train
from shunter.engine.ranking.solver import solve_ranking
from shunter.engine.ranking.trainer import RankingData, train_ranking
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.hardware.meters.meter import EnergyMeter, measure_energy
from shunter.hardware.types import Placement
from shunter.model_families import is_solved
from shunter.models.graph import GraphSpec


def trainer_of(job: TrainingJob[Any, Any, Any]) -> Callable[..., TrainResult[Any, Any, Any]]:
    """Return the function that trains a model of its kind; see `shunter.engine.executors.role.Executor.run`."""
    return train_any_ranker if isinstance(job.spec, GraphSpec) else train


class InProcessExecutor(Executor):
    """Executor that trains in this process.

    Args:
        placement: Placement of the training.
    """

    trains_here = True

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.moves: Sequence[str] = []

    def run(
        self, job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
    ) -> TrainResult[Any, Any, Any]:
        """Train a model of any kind; Ctrl-C, a cancelled flow or a time limit ends it after a step, its state saved."""
        return stopped_between_steps(trainer_of(job))(job, hooks, checkpointing)

    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        """Train and return only the figures."""
        return train(job, hooks).figures

    def meter(self) -> EnergyMeter:
        """Return a meter of this machine."""
        load_libraries(self.placement.device)
        return measure_energy(self.placement.accelerator)


def train_any_ranker(
    job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
) -> TrainResult[Any, Any, Any]:
    """Train a ranking model, by a solver or step by step.

    Args:
        job: The training; its data set is converted to a graph if that is not done yet.
        hooks: Functions that are called during the training.
        checkpointing: Folder and frequency of its checkpoints; None saves no state.

    Raises:
        Exception: Errors of `solve_ranking` and `train_ranking`.
    """
    if isinstance(job.dataset, Dataset):
        data = RankingData.of(job.dataset, learn_validation=job.learn_validation, repeats=job.schedule.repeats)
        job = replace(job, dataset=data)
    train = solve_ranking if is_solved(job.spec.family) else train_ranking
    return train(job, hooks, checkpointing)
