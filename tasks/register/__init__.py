"""Step `register`: the model becomes the champion of its name in MLflow's registry."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.ranking.result import TrainedRanker
from shunter.reporting.card.figures import TaskQuality
from shunter.reporting.card.promise import Promise
from shunter.requests import TrainRequest
from shunter.tasks.events import announce
from shunter.tasks.register.promotion import doubt_of, doubt_of_ranker, why_not_promoted, why_ranker_not_promoted
from shunter.tasks.register.quality import check_entropy, check_promise, check_quality, misses
from shunter.tracking.convention import quality_metrics
from shunter.tracking.ranking import ranking_metrics
from shunter.tracking.registry import RegisteredModel, register_model

__all__ = [
    "doubt_of",
    "doubt_of_ranker",
    "misses",
    "register",
    "register_ranker",
    "register_result",
    "why_not_promoted",
]

REGISTER_SECONDS = 3600  # after which a store that answers now and then, and never well, fails the step


@task(name="register", cache_policy=NO_CACHE, timeout_seconds=REGISTER_SECONDS)
def register(
    parent_run_id: str,
    dataset: Dataset,
    model_directory: Path,
    name: str,
    *,
    metrics: Mapping[str, float],
    tags: Mapping[str, str] | None = None,
    not_promoted: str | None = None,
) -> RegisteredModel:
    """Register the model, as the new champion if nothing speaks against it; a second call gets the same version.

    A store that fails or is away is waited for, call by call.
    """
    return register_model(
        parent_run_id, dataset, model_directory, name, metrics=metrics, tags=tags, not_promoted=not_promoted
    )


def register_result(
    request: TrainRequest,
    dataset: Dataset,
    result: EnsembleResult,
    run_id: str,
    quality: Sequence[TaskQuality],
    *,
    promise: Promise | None = None,
) -> RegisteredModel:
    """Register the model, unless it misses the user's quality limit; promote it if it beats the base rate.

    Raises:
        QualityMissedError: AUC or NE on validation miss their limits, or their bounds on the test part do.
    """
    check_quality(request.limits, result.validation.auc)
    check_entropy(request.promise.max_ne, result.validation)
    check_promise(promise, result.validation.auc)
    metrics = {**quality_metrics(result.validation), **quality_metrics(result.test, "test")}
    figures = {name: float(value) for name, value in metrics.items()}
    obstacle = why_not_promoted(request.promote, quality)
    registered = register(
        run_id,
        dataset,
        result.directory,
        request.register_as,
        metrics=figures,
        tags=None if promise is None else promise.tags,
        not_promoted=obstacle,
    )
    return _announced(registered, obstacle, because=result.reason)


def register_ranker(
    request: TrainRequest,
    dataset: Dataset,
    trained: TrainedRanker,
    run_id: str,
    *,
    tags: Mapping[str, str] | None = None,
) -> RegisteredModel:
    """Register a graph model; promote it if it beats the order by popularity."""
    metrics = {**ranking_metrics(trained.validation), **ranking_metrics(trained.test, "test")}
    figures = {name: float(value) for name, value in metrics.items()}
    obstacle = why_ranker_not_promoted(request.promote, trained.gain)
    because = f"NDCG@20 {trained.test.ndcg20:.4f} on the test part."
    registered = register(
        run_id, dataset, trained.directory, request.register_as, metrics=figures, tags=tags, not_promoted=obstacle
    )
    return _announced(registered, obstacle, because=because)


def _announced(registered: RegisteredModel, obstacle: str | None, *, because: str) -> RegisteredModel:
    happening, reason = ("promoted", because) if obstacle is None else ("not-promoted", obstacle)
    announce(happening, registered.name, registered.version, reason)
    return registered
