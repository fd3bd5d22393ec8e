"""Step `card`: what whoever uses the model must know of it, as one page beside the run and in the registry."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.data.dataset import Dataset
from engine.ensemble.result import EnsembleResult
from engine.execution import execution_of
from engine.trained_model import TrainedModel
from hardware.types import Placement
from reporting.card.facts import gather
from reporting.card.figures import ModelCard
from tasks.card.publish import CARD_MARKDOWN, CARD_PAGE, describe_version, publish_card

__all__ = ["CARD_MARKDOWN", "CARD_PAGE", "describe_version", "publish_card", "write_card"]


@task(name="card", cache_policy=NO_CACHE)
def write_card(
    parent_run_id: str,
    dataset: Dataset,
    members: Sequence[TrainedModel],
    result: EnsembleResult,
    placement: Placement,
    *,
    seed: int = 0,
) -> ModelCard:
    """Make the card of the result and keep it with the run; `describe_version` links it from the registry."""
    card = gather(parent_run_id, dataset, members, result, execution_of(placement), seed=seed)
    publish_card(card)
    return card
