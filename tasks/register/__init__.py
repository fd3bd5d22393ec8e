"""Step `register`: the model becomes the champion of its name in MLflow's registry."""

from collections.abc import Mapping
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.data.dataset import Dataset
from engine.ensemble.result import EnsembleResult
from shunter.requests import TrainRequest
from tasks.register.quality import check_quality, misses
from tasks.retries import retried
from tracking.convention import quality_metrics
from tracking.registry import RegisteredModel, register_model

__all__ = ["misses", "register", "register_result"]

REGISTER_SECONDS = 1800  # after which a store that does not answer fails the step


@task(name="register", cache_policy=NO_CACHE, timeout_seconds=REGISTER_SECONDS, **retried())
def register(
    parent_run_id: str,
    dataset: Dataset,
    model_directory: Path,
    name: str,
    *,
    metrics: Mapping[str, float],
    tags: Mapping[str, str] | None = None,
) -> RegisteredModel:
    """Register the model as the new champion; a run that already registered gets its version back."""
    return register_model(parent_run_id, dataset, model_directory, name, metrics=metrics, tags=tags)


def register_result(request: TrainRequest, dataset: Dataset, result: EnsembleResult, run_id: str) -> RegisteredModel:
    """Register the model, unless it misses the user's quality limit.

    Raises:
        QualityMissedError: the AUC on validation is below `min_auc`.
    """
    check_quality(request.limits, result.validation.auc)
    metrics = {**quality_metrics(result.validation), **quality_metrics(result.test, "test")}
    figures = {name: float(value) for name, value in metrics.items()}
    return register(run_id, dataset, result.directory, request.register_as, metrics=figures)
