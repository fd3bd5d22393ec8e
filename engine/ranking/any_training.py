"""A training of any model that ranks, from the data set as it was ingested."""

from dataclasses import replace
from typing import Any

from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.ranking.solver import solve_ranking
from shunter.engine.ranking.trainer import RankingData, train_ranking
from shunter.engine.results import TrainResult
from shunter.models.graph import SOLVED


def train_any_ranker(
    job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
) -> TrainResult[Any, Any, Any]:
    """Solve a model, or train it step by step.

    Args:
        job: The training; its data set is read as a graph, unless that was done.
        hooks: Functions that are called while it goes on.
        checkpointing: Where the state is saved; None keeps none.

    Raises:
        Exception: What `solve_ranking` and `train_ranking` raise.
    """
    if isinstance(job.dataset, Dataset):
        data = RankingData.of(job.dataset, learn_validation=job.learn_validation, repeats=job.schedule.repeats)
        job = replace(job, dataset=data)
    train = solve_ranking if job.spec.family in SOLVED else train_ranking
    return train(job, hooks, checkpointing)
