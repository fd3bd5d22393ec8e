"""Step `card`: what whoever uses the model must know of it, as one page beside the run and in the registry."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.execution import execution_of
from shunter.engine.trained_model import TrainedModel
from shunter.hardware.types import Placement
from shunter.reporting.card.baselines import Rival, TrainedBaseline, baseline_metrics, compare_baselines
from shunter.reporting.card.facts import gather
from shunter.reporting.card.figures import ModelCard
from shunter.reporting.card.promise import Promise
from shunter.reporting.card.quality import gauc_metrics
from shunter.tasks.card.publish import CARD_MARKDOWN, CARD_PAGE, describe_version, publish_card
from shunter.tasks.card.ranking import CARD, write_ranking_card
from shunter.tracking.runs import open_run

__all__ = [
    "CARD",
    "CARD_MARKDOWN",
    "CARD_PAGE",
    "describe_version",
    "publish_card",
    "write_card",
    "write_ranking_card",
]


@task(name="card", cache_policy=NO_CACHE)
def write_card(
    parent_run_id: str,
    dataset: Dataset,
    members: Sequence[TrainedModel],
    result: EnsembleResult,
    placement: Placement,
    *,
    baselines: Sequence[TrainedBaseline | Rival] = (),
    seed: int = 0,
    notes: Sequence[str] = (),
    promise: Promise | None = None,
) -> ModelCard:
    """Make the card of the result and keep it with the run; `describe_version` links it from the registry.

    `notes` are sentences that the training adds to what to look out for.
    """
    execution = execution_of(placement)
    compared = compare_baselines(dataset, baselines, result, execution, seed=seed)
    run = open_run(parent_run_id)
    run.log_metrics(baseline_metrics(compared, result.test))
    run.set_tags({f"baseline.{one.name}.verdict": one.verdict for one in compared})
    if promise is not None:
        run.log_metrics(promise.metrics)
    words = "" if promise is None else promise.words
    card = gather(
        parent_run_id,
        dataset,
        members,
        result,
        execution,
        baselines=compared,
        seed=seed,
        notes=notes,
        promise=words,
    )
    run.log_metrics(gauc_metrics(card.quality))
    publish_card(card)
    return card
