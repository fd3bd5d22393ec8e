"""What a kill at any moment of a trial leaves in the study, simulated there, and how the search goes on with it."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from optuna import Study, Trial

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.executors.role import Executor
from shunter.engine.job import ClickJob, Hooks
from shunter.engine.results import TrainingFigures
from shunter.errors import ProcessLostError
from shunter.hardware.devices import memory_limits
from shunter.hardware.types import Placement
from shunter.requests import TrainRequest
from shunter.search.protocol import Outcome
from shunter.search.result import TuneResult
from shunter.search.search import search
from shunter.search.study import interrupted
from shunter.search.study.address import storage_address
from shunter.search.study.halving import Halving
from shunter.search.study.interrupted import OUT_OF_MEMORY, OWNER
from shunter.search.study.loop import Progress
from shunter.search.study.storage import begun_trials, failures, finished_trials, has_waiting, open_study, record, tell
from tests.search.spaces import PLACEMENT, SMALL, search_job

EPOCHS, SEED = 3, 1  # of which the third trial is stopped early
POINT = {**SMALL.default(), "dropout": 0.25}


def search_in(directory: Path, dataset: Dataset, parent: str, *, interrupt_after: int | None = None) -> TuneResult:
    def interrupt(progress: Progress) -> None:
        if progress.done == interrupt_after:
            raise KeyboardInterrupt

    request = TrainRequest(trials=5, max_epochs=EPOCHS, seed=SEED)
    job = search_job(dataset, request, directory, parent)
    return search(job, on_trial=interrupt)


def figures(result: TuneResult) -> list[tuple[object, ...]]:
    return [
        (one.trial_number, one.spec, one.hyperparameters, one.validation_ne, one.is_pruned) for one in result.settings
    ]


def queued(study: Study) -> None:
    """The point waits, and nobody has begun."""
    study.enqueue_trial(POINT)


def begun(study: Study) -> Trial:
    """The trial has begun, and nothing of its point was drawn."""
    study.enqueue_trial(POINT)
    return study.ask()


def half_drawn(study: Study) -> Trial:
    trial = record(study, POINT)
    trial.suggest_categorical("embedding_dim", SMALL.embedding_dims)
    trial.suggest_categorical("top_width", SMALL.top_widths)
    return trial


def under_way(study: Study) -> Trial:
    """It has reached a rung, and stands in the way of whoever is compared with it there."""
    trial = record(study, POINT)
    SMALL.suggest(trial)
    Halving(study, (), EPOCHS).is_beaten(trial, 1.0, 0.1, None)
    return trial


def half_told(study: Study) -> Trial:
    trial = under_way(study)
    trial.set_user_attr("validation_ne", 0.1)
    trial.set_constraint("min_auc", 0.0)
    return trial


@pytest.mark.parametrize("left", [queued, begun, half_drawn, under_way, half_told])
def test_a_trial_that_was_left_at_any_moment_is_tried_again_at_its_own_point_however_often(
    left: Callable[[Study], Trial | None], tmp_path: Path
) -> None:
    address = storage_address(tmp_path, None)
    study = open_study(address, SMALL)
    left(study)
    for _ in range(2):
        study = open_study(address, SMALL)
        assert has_waiting(study)
        trial = record(study, None)
        assert SMALL.suggest(trial) == POINT
        assert trial.number == 0
        [kept] = study.trials
        assert not kept.intermediate_values
        assert set(kept.user_attrs) == {OWNER, interrupted.MEMORY_KILLS}
    assert failures(study) == []


def test_those_that_count_keep_their_place_and_all_that_is_known_of_them(tmp_path: Path) -> None:
    address = storage_address(tmp_path, None)
    study = open_study(address, SMALL, cost="step_seconds")
    open_study(address, SMALL).enqueue_trial(POINT)  # another study in the same file
    outcome = Outcome(state="complete", validation_ne=0.8, costs={"step_seconds": 0.01}, violations={"min_auc": 0.1})
    trials = [record(study, POINT) for _ in range(3)]
    for trial in trials:
        SMALL.suggest(trial)
    tell(study, trials[0], outcome, "step_seconds")
    tell(study, trials[2], Outcome(state="pruned", validation_ne=0.9), "step_seconds")
    before = study.trials
    again = open_study(address, SMALL, cost="step_seconds")
    assert [trial.state.name for trial in again.trials] == ["COMPLETE", "WAITING", "PRUNED"]
    for old, new in ((before[0], again.trials[0]), (before[2], again.trials[2])):
        assert (old.number, old.params, old.values, old.user_attrs) == (
            new.number,
            new.params,
            new.values,
            new.user_attrs,
        )
        assert old.constraints == new.constraints
    assert len(begun_trials(again)) == len(finished_trials(again)) == 2
    assert has_waiting(open_study(address, SMALL))


def test_a_search_that_was_left_twice_in_one_trial_ends_like_an_undisturbed_one(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    undisturbed = search_in(tmp_path / "a", dataset, parent)
    assert undisturbed.pruned_trials, "otherwise nothing is compared"
    points = [trial.params for trial in open_study(storage_address(tmp_path / "a", None), SMALL).trials]
    with pytest.raises(KeyboardInterrupt):
        search_in(tmp_path / "b", dataset, parent, interrupt_after=2)
    for _ in range(2):
        study = open_study(storage_address(tmp_path / "b", None), SMALL)
        trial = record(study, None if has_waiting(study) else points[2])
        SMALL.suggest(trial)
        Halving(study, (), EPOCHS).is_beaten(trial, 1.0, 0.0, None)  # better than whatever comes
    disturbed = search_in(tmp_path / "b", dataset, parent)
    assert disturbed.resumed_trials == 2
    assert disturbed.failed_trials == 0
    assert figures(disturbed) == figures(undisturbed)


def test_an_end_for_want_of_memory_is_the_fault_of_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = tmp_path / "vmstat"
    counter.write_text("nr_dirty 3\noom_kill 4\n")
    monkeypatch.setattr(memory_limits, "OWN_GROUP", tmp_path / "none")
    monkeypatch.setattr(memory_limits, "MACHINE", counter)
    for number, shared in enumerate((None, str(tmp_path / "shared.db"))):
        address = storage_address(tmp_path / "own", shared)
        study = open_study(address, SMALL, is_shared=shared is not None)
        trial = record(study, POINT)
        SMALL.suggest(trial)
        trial.set_user_attr(OWNER, None)
        counter.write_text(f"oom_kill {5 + number}\n")
        again = open_study(address, SMALL, is_shared=shared is not None)
        assert failures(again) == [OUT_OF_MEMORY]
        assert not has_waiting(again)


def test_in_a_storage_of_several_the_point_is_queued_whole(tmp_path: Path) -> None:
    address = storage_address(tmp_path, str(tmp_path / "shared.journal"))
    study = open_study(address, SMALL, is_shared=True)
    half_drawn(study).set_user_attr(OWNER, None)
    for _ in range(2):
        study = open_study(address, SMALL, is_shared=True)
        trial = record(study, None)
        assert SMALL.suggest(trial) == POINT
        trial.set_user_attr(OWNER, None)
    assert finished_trials(study) == []


def test_a_clock_that_jumps_makes_no_living_process_a_dead_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of its begin is counted from that of the boot, which moves with the clock."""
    address = storage_address(tmp_path, str(tmp_path / "shared.db"))
    record(open_study(address, SMALL, is_shared=True), POINT)
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: 3600.0)
    assert not has_waiting(open_study(address, SMALL, is_shared=True))


def test_a_draft_that_a_kill_left_is_no_harm(tmp_path: Path) -> None:
    address = storage_address(tmp_path, None)
    half_drawn(open_study(address, SMALL))
    (tmp_path / "study.db.draft").write_text("half a file")
    assert has_waiting(open_study(address, SMALL))
    assert not (tmp_path / "study.db.draft").exists()


class Losing(InProcessExecutor):
    """Trains here, and pretends that its process is killed the first few times."""

    def __init__(self, times: int) -> None:
        super().__init__(PLACEMENT)
        self.times = times

    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        self.times -= 1
        if self.times >= 0:
            raise ProcessLostError("The process of the trial was ended by SIGKILL.")
        return super().figures(job, hooks)

    def executors(self, placement: Placement, count: int) -> list[Executor]:
        return [self]

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> Executor:
        return self


@pytest.mark.parametrize(("times", "complete"), [(3, 2), (4, 1)])
def test_a_point_whose_process_is_killed_a_few_times_is_no_failure(
    times: int, complete: int, dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    request = TrainRequest(trials=2, max_epochs=1)
    job = search_job(dataset, request, tmp_path, parent)
    result = search(job, place=Losing(times))
    assert (result.complete_trials, result.failed_trials) == (complete, 2 - complete)
