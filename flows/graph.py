"""What the flow does for a graph model, in the place of tuning, members and ensemble: one training, scored once."""

from collections.abc import Callable
from pathlib import Path

from engine.config import Schedule
from engine.data.dataset import Dataset
from engine.execution import execution_of
from engine.job import TrainingJob
from engine.ranking.config import RankingHyperparameters
from engine.ranking.interactions import sides
from engine.ranking.result import TrainedRanker
from hardware.types import Placement
from models.graph import GRAPH_FAMILIES, default_spec
from shunter.errors import RequestError
from shunter.requests.training import TrainRequest
from tasks.register import register
from tasks.train import train_member
from tracking.ranking import ranking_metrics
from tracking.registry.models import RegisteredModel
from tracking.runs import open_run

PATIENCE = 3  # epochs without a better NDCG@20 on validation


def is_graph_model(request: TrainRequest) -> bool:
    """Whether the request is for a model that ranks along a graph."""
    return request.model in GRAPH_FAMILIES


def check_graph_request(request: TrainRequest, dataset: Dataset) -> None:
    """Refuse what a graph model cannot do, before anything is measured.

    Raises:
        RequestError: The request asks for processes, a cluster or an AUC, or the schema names no user and item.
    """
    sides(dataset)
    asked = {
        "--processes": request.training.processes > 1,
        "--cluster": getattr(request, "cluster", None) is not None,
        "--min-auc": request.limits.min_auc is not None,
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise RequestError(
                f"A graph model such as {request.model} is trained by one process here, and ranks instead of giving a "
                f"probability: leave out {option}."
            )


def train_graph_model(
    request: TrainRequest,
    dataset: Dataset,
    placement: Placement,
    directory: Path,
    *,
    run_id: str,
    should_stop: Callable[[], str | None],
) -> TrainedRanker:
    """Train the one setting of the family, and put its quality on the parent run."""
    trained = train_member(
        TrainingJob(
            dataset,
            default_spec(request.model),
            RankingHyperparameters(),
            execution_of(placement),
            Schedule(max_epochs=request.training.max_epochs, patience=PATIENCE, seed=request.seed),
        ),
        placement,
        directory,
        parent_run_id=run_id,
        should_stop=should_stop,
    )
    run = open_run(run_id)
    run.log_metrics({**ranking_metrics(trained.validation), **ranking_metrics(trained.test, "test")})
    return trained


def register_ranker(request: TrainRequest, dataset: Dataset, trained: TrainedRanker, run_id: str) -> RegisteredModel:
    """Register the ranker as the new champion."""
    metrics = {**ranking_metrics(trained.validation), **ranking_metrics(trained.test, "test")}
    figures = {name: float(value) for name, value in metrics.items()}
    return register(run_id, dataset, trained.directory, request.register_as, metrics=figures)
