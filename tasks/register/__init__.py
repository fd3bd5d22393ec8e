"""Step `register`: register the model, and promote it to champion of its name in MLflow's registry if it is better."""

from collections.abc import Mapping, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.metrics import Metrics
from shunter.engine.ranking.result import TrainedRanker
from shunter.errors import QualityNotReachedError
from shunter.reporting.card.figures import TaskQuality
from shunter.reporting.card.promise import Promise
from shunter.requests import Limits, Promote, TrainRequest
from shunter.tasks.register.succession import (
    Challenger,
    Refusal,
    doubt_of,
    doubt_of_ranker,
    why_not_promoted,
)
from shunter.tasks.run_log import announce
from shunter.tracking.convention import headline_metrics, quality_metrics
from shunter.tracking.ranking import ranking_metrics
from shunter.tracking.registry.models import RegisteredModel, register_model

__all__ = [
    "Challenger",
    "doubt_of",
    "doubt_of_ranker",
    "misses",
    "obstacle_of",
    "register",
    "register_ranker",
    "register_result",
]

REGISTER_SECONDS = 3600  # after which the step fails, if the store answers only now and then


register = task(name="register", cache_policy=NO_CACHE, timeout_seconds=REGISTER_SECONDS)(register_model)


def register_result(
    request: TrainRequest,
    dataset: Dataset,
    result: EnsembleResult,
    run_id: str,
    quality: Sequence[TaskQuality],
    *,
    execution: Execution,
    promise: Promise | None = None,
) -> RegisteredModel:
    """Register the model unless it misses a quality limit; promote it if it beats the base rate and the champion.

    Raises:
        QualityNotReachedError: AUC or NE, or their confidence bounds on the test part, miss their limits.
    """
    check_quality(request.limits, result.validation, max_ne=request.promise.max_ne, promise=promise)
    metrics = {**quality_metrics(result.validation), **quality_metrics(result.test, "test")}
    figures = headline_metrics(metrics)
    name = request.registered_name
    challenger = Challenger(name, run_id, dataset, result.directory, execution, request.seed)
    obstacle = obstacle_of(request.promote, quality, challenger)
    registered = register(
        run_id,
        dataset,
        result.directory,
        name,
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
    """Register a graph model; promote it if it ranks better than item popularity and than the champion."""
    metrics = {**ranking_metrics(trained.validation), **ranking_metrics(trained.test, "test")}
    figures = headline_metrics(metrics)
    name = request.registered_name
    challenger = Challenger(
        name, run_id, dataset, trained.directory, Execution(), request.seed, trained.schedule.repeats
    )
    obstacle = why_not_promoted(request.promote, doubt_of_ranker(trained.gain)) or _sentence(
        challenger.refusal(request.promote)
    )
    because = f"NDCG@20 {trained.test.ndcg20:.4f} on the test part."
    registered = register(run_id, dataset, trained.directory, name, metrics=figures, tags=tags, not_promoted=obstacle)
    return _announced(registered, obstacle, because=because)


def obstacle_of(promote: Promote, quality: Sequence[TaskQuality], challenger: Challenger) -> str | None:
    """Return why a click model does not become the champion, in one sentence; None if it does.

    Raises:
        TrackingError: The store fails.
    """
    return why_not_promoted(promote, doubt_of(quality)) or _sentence(challenger.refusal(promote))


def _sentence(refusal: Refusal | None) -> str | None:
    return None if refusal is None else refusal.sentence


def _announced(registered: RegisteredModel, obstacle: str | None, *, because: str) -> RegisteredModel:
    happening, reason = ("promoted", because) if obstacle is None else ("not-promoted", obstacle)
    announce(happening, registered.name, registered.version, reason)
    return registered


def misses(limits: Limits, auc: float) -> bool:
    """Return True if the validation AUC is below the user's limit, or is NaN although there is a limit."""
    return limits.min_auc is not None and not auc >= limits.min_auc


def check_quality(
    limits: Limits, validation: Metrics, *, max_ne: float | None = None, promise: Promise | None = None
) -> None:
    """Raise if a model misses the user's limits on validation, or cannot guarantee the requested quality.

    Raises:
        QualityNotReachedError: The AUC is below `min_auc`, the NE is above `max_ne` or NaN, or a confidence bound of
            the promise misses its limit.
    """
    auc, more = validation.auc, "so it was not registered: allow more --trials or --max-epochs"
    missed = None
    if misses(limits, auc):
        missed = f"The model reached AUC {auc:.4f} on validation, below --min-auc {limits.min_auc:g}, {more}, or lower"
    elif max_ne is not None and not validation.ne <= max_ne:
        missed = f"The model reached NE {validation.ne:.4f} on validation, above --max-ne {max_ne:g}, {more}, or raise"
    if missed is not None:
        raise QualityNotReachedError(f"{missed} the limit.", auc)
    if promise is not None and promise.shortfall is not None:
        raise QualityNotReachedError(
            f"The model was not registered: {promise.shortfall}; give more data, lower the limit, or reduce the "
            "confidence with --min-auc-confidence.",
            auc,
        )
