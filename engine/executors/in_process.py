"""Executor that trains in this process."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from shunter.engine.config import Hyperparameters
from shunter.engine.executors.role import Executor
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.loop.interrupt import stopped_between_steps
from shunter.engine.loop.step import build_dense_optimizer
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.hardware.meters.meter import EnergyMeter, measure_energy
from shunter.hardware.types import Placement
from shunter.model_families import PROBLEMS, problem_of
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

SMALLEST = Features(dense=("number",), categorical=(CategoricalFeature(name="id", rows=2),))


def load_libraries(device: str) -> None:
    """Load the libraries that torch and the embedding kernels load on first use, which takes seconds.

    Otherwise the first of several training runs in a process would include this time, and appear slower than the
    others. A second call is fast.
    """
    with contextlib.suppress(Exception):  # the training run reports a broken device in more detail
        model = build_model(model_spec(embedding_dim=4, bottom_widths=(), top_widths=()), SMALLEST, device=device)
        build_dense_optimizer(model, Hyperparameters())


def trainer_of(job: TrainingJob[Any, Any, Any]) -> Callable[..., TrainResult[Any, Any, Any]]:
    """Return the function that trains a job's kind of model: click model or graph model."""
    return PROBLEMS.load_part(problem_of(job.spec.family), "trainer")


class InProcessExecutor(Executor):
    """Executor that runs training jobs in the calling process."""

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
