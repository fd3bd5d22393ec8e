"""Step `train`: one setting trained to the end, on the chosen placement."""

from collections.abc import Callable
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.checkpoint.warm_start import WarmStart
from engine.config import Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.executors.adaptation import Adaptation
from engine.executors.role import Place
from engine.ranking.config import RankingHyperparameters
from engine.trained_model import TrainedModel
from hardware.types import Placement
from models.graph import GraphSpec
from models.spec import ModelSpec
from tasks.retries import retried
from tasks.train.member import train_to_the_end
from tasks.train.ranking import TrainedRanker, train_ranker_to_the_end

__all__ = ["train_member", "train_ranker", "train_ranker_to_the_end", "train_to_the_end"]


# Tried again, it goes on from its checkpoint.
@task(name="train", task_run_name="train-{name}", cache_policy=NO_CACHE, **retried())
def train_member(
    dataset: Dataset,
    spec: ModelSpec,
    hyperparameters: Hyperparameters,
    placement: Placement,
    schedule: Schedule,
    *,
    directory: Path,
    name: str = "member",
    parent_run_id: str | None = None,
    should_stop: Callable[[], str | None] | None = None,
    adaptation: Adaptation | None = None,
    checkpoint_seconds: float = 300.0,
    place: Place | None = None,
    warm_start: WarmStart | None = None,
) -> TrainedModel:
    """Train one setting to the end, or on from where it stopped; a finished one is returned at once."""
    return train_to_the_end(
        dataset,
        spec,
        hyperparameters,
        placement,
        schedule,
        directory=directory,
        name=name,
        parent_run_id=parent_run_id,
        should_stop=should_stop,
        adaptation=adaptation,
        checkpoint_seconds=checkpoint_seconds,
        place=place,
        warm_start=warm_start,
    )


@task(name="train-ranker", task_run_name="train-{name}", cache_policy=NO_CACHE, **retried())
def train_ranker(
    dataset: Dataset,
    spec: GraphSpec,
    hyperparameters: RankingHyperparameters,
    placement: Placement,
    schedule: Schedule,
    *,
    directory: Path,
    name: str = "member-0",
    parent_run_id: str | None = None,
    should_stop: Callable[[], str | None] | None = None,
) -> TrainedRanker:
    """Train one graph model to the end, or on from where it stopped; a finished one is returned at once."""
    return train_ranker_to_the_end(
        dataset,
        spec,
        hyperparameters,
        placement,
        schedule,
        directory=directory,
        name=name,
        parent_run_id=parent_run_id,
        should_stop=should_stop,
    )
