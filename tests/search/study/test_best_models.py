"""The best trials that came to their end are kept, and only those."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.engine.trained_model import TrainedModel, read_finished
from shunter.hardware.types import EnergyReading
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.search.protocol import Outcome
from shunter.search.search import search
from shunter.search.study.best_models import BestTrialModels, in_turn, stored_trial_model
from tests.engine.reasons import ENOUGH
from tests.search.spaces import PLACEMENT, search_job

NOTHING = EnergyReading(joules=None, seconds=0.0, mean_watts=None, method="unavailable", source="a test")


@pytest.fixture(scope="module")
def job(dataset: Dataset) -> ClickJob:
    spec = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))
    return TrainingJob(dataset, spec, Hyperparameters(), execution_of(PLACEMENT), Schedule(max_epochs=1))


@pytest.fixture(scope="module")
def result(job: ClickJob) -> TrainResult:
    return train(job)


def keep(
    kept: BestTrialModels, number: int, result: TrainResult, job: ClickJob, outcomes: Mapping[int, Outcome]
) -> None:
    kept.keep(number, result, job, outcomes, placement=PLACEMENT, energy=NOTHING, run_id="run")


@given(st.lists(st.floats(0.1, 2.0), min_size=1, max_size=6, unique=True), st.integers(1, 3))
def test_the_best_so_far_are_kept_whatever_their_order(
    job: ClickJob, result: TrainResult, tmp_path_factory: pytest.TempPathFactory, losses: list[float], most: int
) -> None:
    folder = tmp_path_factory.mktemp("search")
    kept = BestTrialModels(folder, most, None)
    outcomes: dict[int, Outcome] = {}
    for number, loss in enumerate(losses):
        outcomes[number] = Outcome(state="complete", validation_ne=loss)
        keep(kept, number, result, job, outcomes)
    best = sorted(outcomes, key=lambda number: losses[number])[:most]
    assert {number for number in outcomes if stored_trial_model(folder, number)} == set(best)


def test_beyond_those_that_rank_first_the_best_of_each_other_family_comes_first() -> None:
    families = dict(enumerate(("dcnv2", "dcnv2", "dcnv2", "dlrm", "dlrm", "dnn", "dcnv2")))
    ranked = [6, 0, 1, 2, 4, 3, 5]
    assert in_turn(ranked, families, 2) == [6, 0, 4, 5, 1, 2, 3]
    assert in_turn(ranked, families, 7) == in_turn(ranked, families, 6) == ranked
    assert in_turn(ranked, families, 0) == [6, 4, 5, 0, 1, 2, 3]


def test_the_best_of_another_family_is_kept_before_more_of_the_first(
    job: ClickJob, result: TrainResult, tmp_path: Path
) -> None:
    others = TrainingJob(job.dataset, model_spec("dnn"), job.hyperparameters, job.execution, job.schedule)
    losses = (0.9, 0.8, 0.95, 0.7, 0.99)
    outcomes: dict[int, Outcome] = {}
    for number, loss in enumerate(losses):
        outcomes[number] = Outcome(state="complete", validation_ne=loss)
        again = BestTrialModels(tmp_path, 2, None, by_rank=1)  # as after an interruption
        keep(again, number, result, others if number in (2, 4) else job, outcomes)
    assert [number for number in outcomes if stored_trial_model(tmp_path, number)] == [2, 3]


def test_one_that_breaks_a_limit_gives_way(job: ClickJob, result: TrainResult, tmp_path: Path) -> None:
    kept = BestTrialModels(tmp_path, 1, None)
    broken = Outcome(state="complete", validation_ne=0.5, violations={"max_watts": 3.0})
    outcomes = {0: broken, 1: Outcome(state="complete", validation_ne=0.9)}
    keep(kept, 0, result, job, outcomes)
    assert stored_trial_model(tmp_path, 0)
    keep(kept, 1, result, job, outcomes)
    assert stored_trial_model(tmp_path, 0) is None
    assert stored_trial_model(tmp_path, 1)


def test_what_a_budget_ended_is_not_kept(job: ClickJob, result: TrainResult, tmp_path: Path) -> None:
    ended = TrainResult(**{**vars(result), "stop_reason": ENOUGH})
    keep(BestTrialModels(tmp_path, 1, None), 0, ended, job, {0: Outcome(state="complete", validation_ne=0.5)})
    assert stored_trial_model(tmp_path, 0) is None


def test_search_keeps_what_an_undisturbed_training_gives(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    request = TrainRequest(trials=3, max_epochs=2)
    asked = search_job(dataset, request, tmp_path, parent, checks=(1 / 2,), keep=3)
    tuned = search(asked)
    complete = [setting for setting in tuned.settings if not setting.is_pruned]
    assert complete
    for setting in complete:
        schedule = Schedule(max_epochs=2, seed=request.seed)
        alone = TrainingJob(dataset, setting.spec, setting.hyperparameters, execution_of(PLACEMENT), schedule)
        folder = stored_trial_model(tmp_path, setting.trial_number)
        assert folder is not None
        trained = read_finished(TrainedModel, folder, alone)
        assert trained is not None
        weights = train(alone).model.state_dict()
        assert all(value.equal(weights[name]) for name, value in load_model(folder).state_dict().items())
        assert trained.trial == setting.trial_number
    pruned = [setting for setting in tuned.settings if setting.is_pruned]
    assert not any(stored_trial_model(tmp_path, setting.trial_number) for setting in pruned)


def test_search_that_was_not_asked_keeps_nothing(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    request = TrainRequest(trials=1, max_epochs=1)
    search(search_job(dataset, request, tmp_path, parent))
    assert stored_trial_model(tmp_path, 0) is None


def test_what_the_end_of_the_search_cut_off_is_kept_for_it_is_not_made_again(
    job: ClickJob, result: TrainResult, tmp_path: Path
) -> None:
    ended = TrainResult(**{**vars(result), "stop_reason": ENOUGH})
    kept = BestTrialModels(tmp_path, 1, None, is_cut=lambda: True)
    keep(kept, 0, ended, job, {0: Outcome(state="complete", validation_ne=0.5)})
    assert stored_trial_model(tmp_path, 0)
