"""A training's three parts from flat arguments, for tests that change one of them at a time."""

from pathlib import Path
from typing import Any

from shunter.engine.checkpoint.checkpoint_settings import BY_DEFAULT, CheckpointSettings
from shunter.engine.checkpoint.warm_start import WarmStart
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.models.spec import ModelSpec


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
    checkpoint_settings: CheckpointSettings = BY_DEFAULT,
    **hooks: Any,
) -> tuple[ClickJob, Hooks, Checkpointing | None]:
    """The job, the hooks and the checkpointing of a training."""
    job = TrainingJob(dataset, spec, hyperparameters, execution, schedule, warm_start)
    kept = None
    if checkpoint_directory:
        kept = Checkpointing(checkpoint_directory, checkpoint_seconds, checkpoint_steps, checkpoint_settings)
    return job, Hooks(**hooks), kept
