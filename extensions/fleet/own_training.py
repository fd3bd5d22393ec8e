"""Training of a job in Shunter's own format: its request fixes some settings, all others have their defaults."""

import hashlib
from dataclasses import replace

from pydantic_core import to_json

from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.overrides import check_overrides, read_overrides
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.search.space.learning import USUAL_BATCH_SIZE, default_hyperparameters, weights_of_tasks

PATIENCE = 2  # epochs without improvement on validation, as for members of an ensemble


def training_of(request: TrainRequest, dataset: Dataset) -> ClickJob:
    """Return one training run with the settings that a request fixes, and default settings of its family.

    Raises:
        RequestError: No model with these settings can be built for the features.
    """
    overrides = read_overrides(request.model, request.architecture.settings)
    check_overrides(request.model, overrides, dataset.features)
    weights = weights_of_tasks(request.training.task_weights, dataset.features.tasks)
    usual = replace(default_hyperparameters(request.model), task_weights=weights)
    sizes = request.placement.sizes
    return TrainingJob(
        dataset,
        model_spec(request.model, **overrides.architecture),
        replace(usual, **overrides.learning),
        Execution(batch_size=sizes[0] if sizes else USUAL_BATCH_SIZE),
        Schedule(
            max_epochs=request.longest_epochs,
            patience=overrides.patience or PATIENCE,
            seed=request.seed,
            select_by=request.training.select_by.value,
        ),
    )


def key_of(training: ClickJob, processes: int = 1) -> str:
    """Return a key that is equal for training jobs with the same work and the same number of processes."""
    told = (
        training.dataset.fingerprint,
        training.spec,
        training.hyperparameters,
        training.schedule,
        training.execution.batch_size,
    )
    key = hashlib.sha256(to_json(told)).hexdigest()[:16]
    return key if processes == 1 else f"{key}-p{processes}"
