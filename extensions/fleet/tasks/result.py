"""Result of a trained job of a fleet: its test metrics and its registered model."""

from pathlib import Path

from shunter.engine.execution import execution_of
from shunter.engine.trained_model import TrainedModel
from shunter.extensions.fleet.tasks.jobs import FleetJob
from shunter.reporting.card.quality import quality_of_files
from shunter.tasks.ensemble import EnsembleLimits, combine_members, scoring_placement
from shunter.tasks.register import Challenger, obstacle_of
from shunter.tracking.convention import quality_metrics
from shunter.tracking.registry.models import register_model


def evaluate_and_register(job: FleetJob, trained: TrainedModel, directory: Path) -> dict[str, float]:
    """Evaluate a trained model once on the test part, and register it under the name in its request.

    Args:
        job: The job.
        trained: Result of the training.
        directory: Folder of the final model.

    Returns:
        Its metrics, by the names in MLflow.

    Raises:
        TrackingError: The tracking store fails.
    """
    assert trained.run_id is not None, "the training runs of a fleet are tracked"
    placement = scoring_placement(trained.placement)
    seed, select_by = job.request.seed, job.request.training.select_by.value
    result = combine_members(
        job.dataset,
        [trained],
        placement,
        directory,
        parent_run_id=trained.run_id,
        seed=seed,
        select_by=select_by,
        limits=EnsembleLimits(most=1),
    )
    name = job.request.named_after(job.dataset.name).registered_name
    execution = execution_of(placement)
    quality = quality_of_files(result.directory, job.dataset, execution, seed=seed)
    challenger = Challenger(name, trained.run_id, job.dataset, result.directory, execution, seed)
    values = {**quality_metrics(result.validation), **quality_metrics(result.test, "test")}
    figures = {name: float(value) for name, value in values.items()}
    register_model(
        trained.run_id,
        job.dataset,
        result.directory,
        name,
        metrics=figures,
        not_promoted=obstacle_of(job.request.promote, quality, challenger),
    )
    return figures
