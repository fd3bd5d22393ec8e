"""The step as Prefect runs it: the progress is seen, the budget's function passes, the result comes back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from mlflow import MlflowClient
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run

from shunter.engine.data.dataset import Dataset
from shunter.hardware.types import Placement
from shunter.planner.decide import Exploration
from shunter.requests import TrainRequest
from shunter.search.job import SearchJob
from shunter.search.result import TuneResult
from shunter.tasks.tune import tune, with_trials_at_a_time
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.engine.synthetic import write_dataset
from tests.planner.test_together import searched


@pytest.mark.usefixtures("prefect_server")
def test_step_in_a_flow_shows_its_progress(tracking_root: Path, tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=400)
    asked: list[int] = []
    flow_run_ids: list[UUID] = []

    def should_stop() -> None:
        asked.append(1)

    @flow
    def tune_only(dataset: Dataset) -> TuneResult:
        flow_run_ids.append(UUID(flow_run.id))
        request = TrainRequest(trials=2, max_epochs=1)
        placement = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
        parent = start_run_tree(request, dataset)
        job = SearchJob(dataset=dataset, request=request, placement=placement, directory=tmp_path, parent_run_id=parent)
        return tune(job, should_stop=should_stop)

    result = tune_only(dataset)
    assert result.complete_trials == 2
    assert asked
    with get_client(sync_client=True) as client:
        [artifact] = client.read_artifacts(
            artifact_filter=ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=flow_run_ids))
        )
    assert artifact.data == 100
    assert artifact.description == f"2 of 2 trials, best on validation NE {result.best.validation_ne:.4f}."


@dataclass
class Held:
    """As many cores as are held."""

    cores: int


@pytest.mark.usefixtures("tracking_root")
@pytest.mark.parametrize(
    ("options", "cores", "count"),
    [
        ({"search_minutes": 20}, 2, 2),
        ({"search_minutes": 2}, 2, 1),  # over before a process more would pay
        ({"search_minutes": 20}, 1, None),  # the other belongs to somebody else
        ({"search_minutes": 20, "parallel_trials": 1}, 2, 1),
        ({"search_minutes": 20, "trials": 9}, 2, None),
        ({"search_minutes": 20, "search_kwh": 1}, 2, None),
        ({"search_minutes": 20, "search_cost": "time"}, 2, None),  # step times are compared
        ({"search_minutes": 20, "search_method": "dnas"}, 2, None),
        ({"search_minutes": 20, "model": "lightgcn"}, 2, None),
        ({}, 2, None),
    ],
)
def test_a_search_by_minutes_alone_uses_the_cores_that_one_trial_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], cores: int, count: int | None
) -> None:
    monkeypatch.setattr("shunter.tasks.tune.usable_cores", lambda: 2)
    request = TrainRequest(**options)
    run_id = start_run_tree(request, write_dataset(tmp_path / "data", rows=40))
    found = with_trials_at_a_time(request, searched({1: 90, 2: 100}), Held(cores), run_id)  # pyright: ignore[reportArgumentType]
    assert found.search.parallel_trials == count
    tags = MlflowClient(tracking_uri()).get_run(run_id).data.tags
    assert ("search.trials_at_a_time" in tags) is (count is not None and "parallel_trials" not in options)


@pytest.mark.usefixtures("tracking_root")
def test_a_search_that_explores_by_an_extra_trial_keeps_its_trials_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.tasks.tune.usable_cores", lambda: 2)
    request = TrainRequest(trials=8)
    run_id = start_run_tree(request, write_dataset(tmp_path / "data", rows=40))
    known = searched({1: 90, 2: 100})
    together = [
        row.model_copy(update={"candidate": row.candidate.model_copy(update={"trials_at_once": 2})})
        for row in known.table
    ]
    placement = known.placement
    exploration = Exploration(
        best_known=placement,
        paired=placement.model_copy(update={"batch_size": 2 * placement.batch_size}),
        stop_multiple=2.0,
        stop_hours=1.0,
        chance=0.5,
    )
    exploring = known.model_copy(update={"table": tuple(together), "exploration": exploration})
    assert exploring.trials_at_once == 2
    assert with_trials_at_a_time(request, exploring, Held(2), run_id).search.parallel_trials == 2  # pyright: ignore[reportArgumentType]
