"""Several trials at a time: threads divided, one study, a trial that dies, and no process left behind."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.executors.separate_process import SubprocessExecutor
from shunter.engine.executors.this_machine import ThisMachine
from shunter.errors import RequestError
from shunter.hardware.types import Placement
from shunter.requests import TrainRequest
from shunter.search.search import search
from shunter.search.study.loop import Progress
from shunter.tracking.store import tracking_uri
from tests.engine.executors.training_processes import training_processes
from tests.engine.reasons import ENOUGH
from tests.search.spaces import search_job

pytestmark = pytest.mark.usefixtures("warm_processes")
PLACEMENT = Placement(accelerator="cpu", threads=4, precision="fp32", batch_size=64)


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    assert training_processes() == []


def test_one_trial_at_a_time_trains_here_with_all_threads() -> None:
    [executor] = ThisMachine().executors(PLACEMENT, 1)
    assert isinstance(executor, InProcessExecutor)
    assert executor.placement == PLACEMENT


@pytest.mark.parametrize(("count", "threads"), [(2, 2), (3, 1), (9, 1)])
def test_threads_are_divided_and_nobody_gets_none(count: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.engine.executors.this_machine.usable_cores", lambda: 4)
    executors = ThisMachine().executors(PLACEMENT, count)
    assert all(isinstance(executor, SubprocessExecutor) for executor in executors)
    assert [executor.placement.threads for executor in executors] == [threads] * count


def test_cores_that_the_placement_leaves_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.engine.executors.this_machine.usable_cores", lambda: 16)
    executors = ThisMachine().executors(PLACEMENT, 4)
    assert [executor.placement.threads for executor in executors] == [4] * 4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_takes_one_trial_at_a_time() -> None:
    placement = PLACEMENT.model_copy(update={"accelerator": "cuda:0"})
    count = torch.cuda.device_count() + 1
    with pytest.raises(RequestError, match=rf"{count} parallel trials needs a GPU"):
        ThisMachine().executors(placement, count)


def test_trials_in_two_processes_are_one_search_and_one_whose_process_is_killed_begins_anew(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    seen: list[Progress] = []

    def kill_one(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 1:
            os.kill(training_processes()[0].pid, signal.SIGKILL)

    request = TrainRequest(trials=5, max_epochs=2, parallel_trials=2)
    placement = PLACEMENT.model_copy(update={"threads": 2})
    result = search(search_job(dataset, request, tmp_path, parent, placement=placement), on_trial=kill_one)
    assert [progress.done for progress in seen] == [1, 2, 3, 4, 5]
    assert result.complete_trials + result.pruned_trials == len(result.settings) == 5
    assert result.failed_trials == 0
    assert result.front
    assert all(one.costs["step_seconds"] > 0 for one in result.settings)
    client = MlflowClient(tracking_uri())
    experiment = client.get_run(parent).info.experiment_id
    runs = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{parent}'")
    assert {run.data.params["placement.threads"] for run in runs} == {"1"}
    killed = [run for run in runs if run.info.status != "FINISHED"]
    assert len(killed) == len(runs) - 5 <= 1, "none, where it had just ended its trial"
    assert all(run.info.status == "KILLED" and "SIGKILL" in run.data.tags["run.reason"] for run in killed)


def test_a_mistake_of_the_request_ends_all_executors(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    too_large = PLACEMENT.model_copy(update={"batch_size": 100_000})
    request = TrainRequest(trials=4, max_epochs=1, parallel_trials=2)
    with pytest.raises(RequestError, match="batch size"):
        search(search_job(dataset, request, tmp_path, parent, placement=too_large))


def test_a_budget_that_ends_stops_the_trials_of_all_slots_which_count_with_what_they_have(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    over: list[Progress] = []
    request = TrainRequest(trials=50, max_epochs=3, parallel_trials=2)
    result = search(
        search_job(dataset, request, tmp_path, parent, placement=PLACEMENT),
        on_trial=over.append,
        should_stop=lambda: ENOUGH if len(over) >= 2 else None,
    )
    assert result.stop_reason == ENOUGH
    assert 2 <= len(result.settings) <= 3
