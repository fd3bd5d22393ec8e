"""Step `register`: the model becomes the champion of its name in MLflow's registry."""

from collections.abc import Mapping
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.data.dataset import Dataset
from tasks.retries import retried
from tracking.registry import RegisteredModel, register_model

__all__ = ["register"]

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
