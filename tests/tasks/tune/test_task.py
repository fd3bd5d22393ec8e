"""The step as Prefect runs it: the progress is seen, the budget's function passes, the result comes back."""

from pathlib import Path
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run

from engine.data.dataset import Dataset
from hardware.types import Placement
from search.job import SearchJob
from search.result import TuneResult
from shunter.requests import TrainRequest
from tasks.tune import tune
from tests.engine.synthetic import write_dataset
from tracking.runs import start_run_tree


@pytest.mark.usefixtures("prefect_server")
def test_step_in_a_flow_shows_its_progress(tracking_root: Path, tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=400)
    asked: list[int] = []
    flow_run_ids: list[UUID] = []

    def should_stop() -> str | None:
        asked.append(1)
        return None

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
