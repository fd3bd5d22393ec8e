"""Searches with a budget, a cost, limits, several slots or a shared storage, over real trainings."""

import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from shunter import parallel
from shunter.engine.checkpoint.checked_files import read_json, write_json
from shunter.engine.data.dataset import Dataset
from shunter.engine.stopping import CLOCK_FILE, StopKind, StopLimit
from shunter.errors import InfeasibleError
from shunter.requests import Limits, SearchCost, TrainRequest
from shunter.search.minutes import TRIALS
from shunter.search.result import TuneResult
from shunter.search.search import search
from shunter.search.space.settings import SearchSpace
from shunter.search.study.loop import Progress
from shunter.tasks.tune import publish_search
from shunter.tracking.store import tracking_uri
from shunter.tracking.tree import read_tree
from tests.engine.executors.training_processes import training_processes
from tests.engine.synthetic import write_dataset
from tests.search.spaces import search_job

SMALL = SearchSpace(
    embedding_dims=(4, 8), top_widths=(8, 16), most_top_layers=1, bottom_widths=(8,), most_bottom_layers=1
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=600)


def tune(
    dataset: Dataset,
    parent: str,
    directory: Path,
    request: TrainRequest,
    checks: tuple[float, ...] | None = None,
    **options: Any,
) -> TuneResult:
    return search(search_job(dataset, request, directory, parent, space=SMALL, checks=checks), **options)


def test_without_trials_the_time_ends_the_search_and_what_was_used_is_kept(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    """The first attempt ends by Ctrl-C; the second begins with what it had used, which is the whole budget."""
    request = TrainRequest(search_minutes=60, max_epochs=1)
    shares: list[float] = []

    def interrupt(progress: Progress) -> None:
        shares.append(progress.share)
        assert progress.trials is None
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(dataset, parent, tmp_path, request, on_trial=interrupt)
    assert 0 < shares[0] < shares[1] < 1
    clock = read_json(tmp_path / CLOCK_FILE)
    assert clock["spans"][TRIALS] > 0
    write_json(tmp_path / CLOCK_FILE, json.dumps({**clock, "spans": {TRIALS: 3_600.0}}))
    result = tune(dataset, parent, tmp_path, request)
    assert result.stop_reason is not None
    assert (result.stop_reason.kind, result.stop_reason.limit) == (StopKind.SEARCH_BUDGET, StopLimit.TIME)
    assert (result.resumed_trials, result.complete_trials) == (2, 2)
    assert result.seconds is not None
    assert result.seconds >= 3_600


def test_quality_is_weighed_against_bytes_and_bad_trials_end_within_the_first_epoch(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    request = TrainRequest(trials=9, max_epochs=3, search_cost=SearchCost.BYTES, search_method="random", seed=3)
    result = tune(dataset, parent, tmp_path, request, checks=(1 / 3,))
    assert result.cost == "parameter_bytes"
    by_number = {setting.trial_number: setting for setting in result.settings}
    points = {number: (one.validation_ne, one.costs["parameter_bytes"]) for number, one in by_number.items()}
    undominated = {
        number
        for number, point in points.items()
        if not any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points.values())
    }
    assert set(result.front) == undominated
    assert result.pruned_trials > 0
    assert {"step_seconds", "parameter_bytes"} <= result.best.costs.keys()
    again = tune(dataset, parent, tmp_path, request, checks=(1 / 3,))  # all are there
    assert again.settings == result.settings
    assert again.resumed_trials == 9
    publish_search(parent, result, tmp_path)
    client = MlflowClient(tracking_uri())
    assert {"search/study.db", "search/front.json"} <= {file.path for file in client.list_artifacts(parent, "search")}
    assert client.get_run(parent).data.tags["search.front"] == " ".join(map(str, result.front))
    assert read_tree(parent).parent.metrics["search.pruned_trials"] == result.pruned_trials


def test_limits_that_nothing_meets_name_the_nearest(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    request = TrainRequest(trials=2, max_epochs=1, limits=Limits(min_auc=0.999, max_memory_gib=1e-3))
    with pytest.raises(InfeasibleError, match=r"None of the 2 .* trial \d \(dlrm, NE .* --min-auc by 0\.") as no:
        tune(dataset, parent, tmp_path, request)
    assert "--max-memory-gib" in str(no.value)


def test_an_estimate_alone_does_not_end_the_search_but_is_told(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    request = TrainRequest(trials=1, max_epochs=1, limits=Limits(max_hours=1e-9))
    result = tune(dataset, parent, tmp_path, request)
    assert not result.best.is_feasible
    assert result.best.violations["max_hours"] > 0
    assert result.winners == result.settings
    assert result.front == ()


def test_what_a_trial_uses_is_kept_while_it_trains(
    dataset: Dataset, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill gives no chance to write it down at the end of the trial."""
    monkeypatch.setattr(parallel, "INTERVAL_SECONDS", 0.01)
    asked: list[bool] = []

    def wait_in_the_first_trial() -> None:
        asked.append(True)
        while len(asked) == 3 and not (tmp_path / CLOCK_FILE).exists():
            time.sleep(0.01)

    request = TrainRequest(trials=1, max_epochs=1)
    tune(dataset, parent, tmp_path, request, should_stop=wait_in_the_first_trial)
    assert len(asked) > 3


@pytest.mark.usefixtures("warm_processes")
def test_two_at_a_time_whose_processes_are_killed(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    """Their trials begin anew, and the search goes on."""
    asked: Counter[int] = Counter()
    killed: list[int] = []

    def kill_while_training() -> None:
        thread = threading.get_ident()
        asked[thread] += 1  # the first time before a trial begins, the next while it trains
        if asked[thread] == 2 and not killed:
            for process in training_processes():
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)

    request = TrainRequest(trials=4, max_epochs=1, parallel_trials=2)
    result = tune(dataset, parent, tmp_path, request, should_stop=kill_while_training)
    assert killed
    assert (result.complete_trials, result.failed_trials) == (4, 0)
    client = MlflowClient(tracking_uri())
    experiment = client.get_run(parent).info.experiment_id
    runs = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{parent}'")
    states = Counter(run.info.status for run in runs)
    assert states["FINISHED"] == 4
    assert states["KILLED"] in {1, 2}  # the other process may not have begun to train
    assert states.total() == 4 + states["KILLED"]
    assert training_processes() == []


def test_a_later_search_goes_on_in_a_shared_storage(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    request = TrainRequest(trials=1, max_epochs=1, search_storage=str(tmp_path / "shared.journal"))
    tune(dataset, parent, tmp_path / "a", request)
    result = tune(dataset, parent, tmp_path / "b", request.model_copy(update={"trials": 2}))
    assert (result.resumed_trials, result.complete_trials) == (1, 2)
