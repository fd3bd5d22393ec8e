"""The method in the search: real trainings, its curve in MLflow, and what it takes from the context."""

from pathlib import Path

import optuna
import pytest
from mlflow import MlflowClient

from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.errors import InfeasibleError
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.hardware.types import Placement
from shunter.requests import Limits, TrainRequest
from shunter.search.context import PastStudy, SearchContext
from shunter.search.job import SearchJob
from shunter.search.methods.registry import build_method
from shunter.search.protocol import BudgetLeft, Outcome, Space
from shunter.search.search import search
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.search.spaces import SMALL

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=256)


def context_of(dataset: Dataset, space: Space, directory: Path, **changed) -> SearchContext:
    return SearchContext(
        space=space,
        study=optuna.create_study(),
        dataset=dataset,
        execution=Execution(),
        schedule=Schedule(),
        directory=directory,
        trials=40,
        **changed,
    )


def test_a_search_learns_and_tells_its_curve(tracking_root: Path, dataset: Dataset, tmp_path: Path) -> None:
    request = TrainRequest(trials=9, max_epochs=1, search_method="rl")
    parent = start_run_tree(request, dataset)

    result = search(
        SearchJob(
            dataset=dataset, request=request, placement=PLACEMENT, directory=tmp_path, parent_run_id=parent, space=SMALL
        )
    )

    assert len({(one.spec, one.hyperparameters) for one in result.settings}) == 9
    curve = MlflowClient(tracking_uri()).get_metric_history(parent, "search.rl.best_reward")
    assert [point.step for point in curve] == [8]
    first_eight = [one.validation_ne for one in result.settings if one.trial_number < 8]
    assert curve[0].value == pytest.approx(-min(first_eight))


def test_past_studies_of_other_data_are_followed(dataset: Dataset, tmp_path: Path) -> None:
    """In the past a width of 8 for the embeddings was always better; other data had no bottom layers."""
    points = [
        {"embedding_dim": dim, "top_width": width, "top_layers": layers, "dropout": 0.1 * share}
        for dim in (4, 8)
        for width in (8, 16)
        for layers in (1, 2)
        for share in range(3)
    ]
    trials = tuple(
        (point, Outcome(state="complete", validation_ne=0.9 - 0.01 * point["embedding_dim"])) for point in points
    )
    past = (PastStudy(name="other", trials=trials, distance=1.0, features={"rows": 500.0, "base_rate": 0.2}),)

    method = build_method("rl", context_of(dataset, SMALL, tmp_path, past=past))

    asked = [method.ask(BudgetLeft()) for _ in range(20)]
    assert sum(point["embedding_dim"] == 8 for point in asked[1:] if point) >= 14


def test_only_architectures_that_fit_are_asked_for(dataset: Dataset, tmp_path: Path) -> None:
    space = ArchitectureSpace(
        features=dataset.features, embedding_dim=16, top=((0, 32, 512), (0, 32, 512)), interactions=("dot", "linear")
    )
    every = {name: values[-1] for name, values in space.factors().items()}
    most_bytes = space.parameter_bytes(every) // 2
    limits = Limits(max_memory_gib=most_bytes / 2**30)

    method = build_method("rl", context_of(dataset, space, tmp_path, limits=limits))

    asked = []
    while (point := method.ask(BudgetLeft())) is not None:
        asked.append(space.parameter_bytes(point))
    assert 0 < max(asked[1:]) <= most_bytes < space.parameter_bytes(every)
    with pytest.raises(InfeasibleError, match="--max-memory-gib"):
        build_method("rl", context_of(dataset, space, tmp_path, limits=Limits(max_memory_gib=1e-9)))
