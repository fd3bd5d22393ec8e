"""What the trials of a search leave for later choices."""

from pathlib import Path

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.errors import QualityNotReachedError
from shunter.hardware.types import Placement
from shunter.planner.history import read_history
from shunter.planner.predict.observe import observer
from shunter.requests import Limits, TrainRequest
from shunter.search.job import SearchJob
from shunter.search.search import search
from shunter.tracking.runs import finish
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile
from tests.search.spaces import SMALL

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=32)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


def _job(dataset: Dataset, parent: str, folder: Path, request: TrainRequest) -> SearchJob:
    return SearchJob(
        dataset=dataset,
        request=request,
        placement=PLACEMENT,
        directory=folder,
        parent_run_id=parent,
        space=SMALL,
        observe=observer(dataset, [make_profile()]),
    )


def test_each_trial_teaches_how_it_ended_and_what_its_steps_took(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    result = search(_job(dataset, parent, tmp_path, TrainRequest(trials=3, max_epochs=1)))
    finish(parent)
    history = read_history()
    trials = [run for run in history.runs if run.kind == "trial"]
    assert len(trials) == 3
    beaten = [run for run in trials if run.outcome == "stopped"]
    assert len(beaten) == result.pruned_trials
    assert all(run.limit == "early_stop" for run in beaten)
    assert all(run.epochs and run.measured.step_seconds for run in trials)
    assert [step.placement for run in trials for step in run.steps] == [PLACEMENT] * 3


def test_each_trial_teaches_the_power_of_its_steps_where_that_was_measured(
    dataset: Dataset, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.hardware.types.LEAST_MEASURED_SHARE", 0.0)  # no counter need be here
    search(_job(dataset, parent, tmp_path, TrainRequest(trials=1, max_epochs=1)))
    finish(parent)
    [trial] = [run for run in read_history().runs if run.kind == "trial"]
    [step] = trial.steps
    assert step.mean_watts is not None
    assert step.mean_watts > 0


def test_search_whose_settings_all_miss_the_quality_says_the_best_that_was_reached(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    request = TrainRequest(trials=2, max_epochs=1, limits=Limits(min_auc=0.999))
    with pytest.raises(QualityNotReachedError, match="--min-auc") as raised:
        search(_job(dataset, parent, tmp_path, request))
    finish(parent)
    aucs = [run.auc for run in read_history().runs if run.kind == "trial" and run.auc is not None]
    assert raised.value.auc == pytest.approx(max(aucs), abs=1e-3)
