"""A training's three parts from flat arguments, for tests that change one of them at a time."""

from pathlib import Path
from typing import Any

from engine.checkpoint.keeping import BY_DEFAULT, Keeping
from engine.checkpoint.warm_start import WarmStart
from engine.config import Execution, Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from models.spec import ModelSpec


def parts_of(
    dataset: Dataset,
    spec: ModelSpec,
    hyperparameters: Hyperparameters,
    execution: Execution,
    schedule: Schedule,
    *,
    warm_start: WarmStart | None = None,
    checkpoint_directory: Path | None = None,
    checkpoint_seconds: float = 300.0,
    checkpoint_steps: int | None = None,
    keeping: Keeping = BY_DEFAULT,
    **hooks: Any,
) -> tuple[ClickJob, Hooks, Checkpointing | None]:
    """The job, the hooks and the checkpointing of a training."""
    job = TrainingJob(dataset, spec, hyperparameters, execution, schedule, warm_start)
    kept = None
    if checkpoint_directory:
        kept = Checkpointing(checkpoint_directory, checkpoint_seconds, checkpoint_steps, keeping)
    return job, Hooks(**hooks), kept
