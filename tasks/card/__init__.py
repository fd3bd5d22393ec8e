"""Step `card`: what whoever uses the model must know of it, as one page beside the run and in the registry."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.dataset import Dataset
from hardware.types import Placement
from tasks.card.facts import gather
from tasks.card.figures import ModelCard
from tasks.card.publish import CARD_MARKDOWN, CARD_PAGE, describe_version, publish_card
from tasks.ensemble import EnsembleResult
from tasks.placement import execution_of
from tasks.train import TrainedModel

__all__ = ["CARD_MARKDOWN", "CARD_PAGE", "ModelCard", "describe_version", "gather", "publish_card", "write_card"]


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
