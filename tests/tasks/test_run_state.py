"""A run's state outlives its process, belongs to one request, and is held by one process at a time."""

import resource
from pathlib import Path

import pytest
from pydantic import BaseModel

from shunter.engine.data.dataset import Dataset, SplitStatistics
from shunter.errors import CheckpointError, RequestError
from shunter.hardware.types import EnergyReading
from shunter.models.spec import CategoricalFeature, Features
from shunter.requests import Limits, TrainRequest
from shunter.tasks.run_state import RunState, unfinished_runs
from shunter.tasks.spending import Spent
from shunter.tracking.runs import start_run
from shunter.tracking.store import open_store


class Identity(BaseModel):
    """As `shunter.tasks.tracked_run.RunIdentity`, which imports Prefect."""

    parent_run_id: str


SPENT = Spent(energy=EnergyReading.of(7.0, 3.5, "estimated", "a test"))


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset(
        name="tiny",
        directory=tmp_path,
        fingerprint="abc",
        features=Features(dense=(), categorical=(CategoricalFeature(name="user", rows=3),)),
        splits={"train": SplitStatistics(rows=4, positives=2)},
        split_by="hash",
        fields=(),
        quarantined_rows=0,
    )


def test_what_was_remembered_is_recalled_by_the_next_process_with_the_same_request(dataset: Dataset) -> None:
    with RunState(TrainRequest(), dataset, "host") as state:
        assert not state.resumed
        state.remember("spent", SPENT)
    with RunState(TrainRequest(), dataset, "host") as state:
        assert state.resumed
        assert state.recall("spent", Spent) == SPENT


def test_another_number_of_processes_goes_on_with_the_same_state(dataset: Dataset) -> None:
    with RunState(TrainRequest(processes=4), dataset, "host") as state:
        state.remember("spent", SPENT)
    with RunState(TrainRequest(processes=2), dataset, "host") as state:
        assert state.resumed


def test_another_request_or_machine_has_another_state(dataset: Dataset) -> None:
    with RunState(TrainRequest(), dataset, "host") as state:
        directory = state.directory
    assert RunState(TrainRequest(seed=1), dataset, "host").directory != directory
    assert RunState(TrainRequest(), dataset, "other").directory != directory


def test_the_folder_is_the_one_that_earlier_versions_left(dataset: Dataset) -> None:
    asked = TrainRequest(data="a.csv", format="csv", limits=Limits(max_hours=2), price_per_hour=1.25, processes=2)
    assert RunState(TrainRequest(), dataset, "host").directory.name == "8e5b322861e9bcb5"
    assert RunState(asked, dataset, "host", purpose="tune").directory.name == "tune-ada38f30fb1bf344"


def test_fresh_forgets_and_ends_the_run_that_nothing_resumes(dataset: Dataset, shunter_home: Path) -> None:
    run_id = start_run("interrupted", "train")
    with RunState(TrainRequest(), dataset, "host") as state:
        state.remember("spent", SPENT)
        state.remember("identity", Identity(parent_run_id=run_id))
    with RunState(TrainRequest(), dataset, "host", fresh=True) as state:
        assert not state.resumed
        assert state.recall("spent", Spent) is None
    assert open_store().mlflow.get_run(run_id).info.status == "KILLED"


def test_finished_run_leaves_nothing_to_resume(dataset: Dataset) -> None:
    with RunState(TrainRequest(), dataset, "host") as state:
        assert unfinished_runs() == [state.directory]
        state.finish()
    assert unfinished_runs() == []


def test_same_training_twice_at_once_is_refused(dataset: Dataset) -> None:
    with (
        RunState(TrainRequest(), dataset, "host"),
        pytest.raises(RequestError, match="already runs"),
        RunState(TrainRequest(), dataset, "host"),
    ):
        pass


def test_half_written_or_foreign_state_counts_as_absent(dataset: Dataset) -> None:
    with RunState(TrainRequest(), dataset, "host") as state:
        (state.directory / "spent.json").write_text('{"energy": ')
        assert state.recall("spent", Spent) is None


def test_a_full_disk_is_said_in_one_sentence_and_what_was_kept_stays(dataset: Dataset) -> None:
    with RunState(TrainRequest(), dataset, "host") as state:
        state.remember("spent", SPENT)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        try:
            with pytest.raises(CheckpointError, match="free some disk space"):
                state.remember("spent", Spent(energy=EnergyReading.of(9.0, 9.0, "estimated", "a test")))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert state.recall("spent", Spent) == SPENT


def test_a_kill_while_a_finished_run_is_removed_leaves_nothing_to_go_on_with(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, **_: object) -> None:
        (path / "identity.json").unlink(missing_ok=True)  # some files are gone
        if path.exists():
            raise KeyboardInterrupt

    with RunState(TrainRequest(), dataset, "host") as state:
        state.remember("identity", SPENT)
        state.remember("spent", SPENT)
        with monkeypatch.context() as patch:
            patch.setattr("shunter.tasks.run_state.shutil.rmtree", killed)
            with pytest.raises(KeyboardInterrupt):
                state.finish()
    assert unfinished_runs() == []
    with RunState(TrainRequest(), dataset, "host") as state:
        assert not state.resumed
        state.finish()
    assert [path for path in state.directory.parent.iterdir() if path.is_dir()] == []
