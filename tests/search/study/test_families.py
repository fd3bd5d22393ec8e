"""Several families: a brief look at each, then the budget for the best two."""

from pathlib import Path

import pytest
from optuna import create_study
from optuna.trial import FrozenTrial, TrialState, create_trial

from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.hardware.types import Placement
from shunter.models.names import auto_families
from shunter.requests import TrainRequest
from shunter.requests.search import PRESET_TRIALS, Preset
from shunter.search.protocol import BudgetLeft, Parameters
from shunter.search.search import search
from shunter.search.space.settings import SearchSpace
from shunter.search.study import families
from shunter.search.study.families import FamilyComparison
from tests.search.spaces import search_job

SPACE = SearchSpace(
    families=("dlrm", "dnn", "deepfm", "dcnv2"),
    embedding_dims=(4,),
    top_widths=(8, 16),
    most_top_layers=2,
    learning_options={"learning_rate_schedule": ("constant", "plateau")},
)
RACE = FamilyComparison(SPACE, 1)
NO_TIME = BudgetLeft(seconds=0.0)


def trial(
    number: int, point: Parameters, loss: float | None, state: TrialState = TrialState.PRUNED, seconds: float = 1.0
) -> FrozenTrial:
    study = create_study()
    study.enqueue_trial(point)
    drawn = study.ask()
    SPACE.suggest(drawn)
    found = create_trial(
        state=TrialState.FAIL if loss is None else state,
        value=loss if state == TrialState.COMPLETE else None,
        params=drawn.params,
        distributions=drawn.distributions,
        user_attrs={"seconds": seconds} | ({} if loss is None else {"validation_ne": loss}),
    )
    found.number = number
    return found


def screenings(**losses: float | None) -> list[FrozenTrial]:
    return [trial(place, SPACE.default(family), loss) for place, (family, loss) in enumerate(losses.items())]


def test_each_family_is_looked_at_once_before_anything_else() -> None:
    begun: list[FrozenTrial] = []
    for place, family in enumerate(SPACE.families):
        assert RACE.next(begun, NO_TIME) == SPACE.default(family)
        begun.append(trial(place, SPACE.default(family), 0.9 - place / 10))
        assert RACE.is_screening(place, SPACE.default(family), begun)


def test_the_best_two_go_on_with_their_own_points_the_better_one_first() -> None:
    begun = screenings(dlrm=0.9, dnn=0.7, deepfm=None, dcnv2=0.8)
    assert RACE.finalists(begun) == ["dnn", "dcnv2"]
    expected = [SPACE.default("dnn"), SPACE.default("dcnv2"), SPACE.held_back("dnn"), SPACE.held_back("dcnv2")]
    for place, point in enumerate(expected, start=len(begun)):
        assert RACE.next(begun, NO_TIME) == point
        begun.append(trial(place, point, 0.6, TrialState.COMPLETE))
        assert not RACE.is_screening(place, point, begun)
        assert RACE.is_final(place, point, begun)
    assert RACE.next(begun, NO_TIME) is None
    assert not RACE.is_final(8, {**expected[0], "dropout": 0.25}, begun)


def test_who_learns_slowly_and_comes_farther_goes_on_where_there_is_time_to_see_it() -> None:
    begun = screenings(dlrm=0.9, dnn=0.7, deepfm=0.75, dcnv2=0.8)
    for family, loss in {"dnn": 0.6, "deepfm": 0.65, "dcnv2": 0.5}.items():
        # 10 seconds a training: after the looks' 4 seconds there are 140 in all, a quarter of which are 35.
        left = BudgetLeft(seconds=140 - sum(one.user_attrs["seconds"] for one in begun))
        assert RACE.next(begun, left) == SPACE.default(family)
        begun.append(trial(len(begun), SPACE.default(family), loss, TrialState.COMPLETE, seconds=10.0))
    assert RACE.finalists(begun) == ["dcnv2", "dnn"]
    assert RACE.next(begun, BudgetLeft(seconds=106)) == SPACE.held_back("dcnv2")  # dlrm would go beyond the quarter
    assert RACE.next(begun, BudgetLeft(seconds=1_000)) == SPACE.default("dlrm")
    assert RACE.next(begun, BudgetLeft(seconds=1_000, trials=8)) == SPACE.held_back("dcnv2")


def test_what_is_drawn_of_a_family_does_not_change_who_goes_on() -> None:
    begun = screenings(dlrm=0.9, dnn=0.7, deepfm=0.75, dcnv2=0.8)
    for family, loss in {"dnn": 0.6, "deepfm": 0.65}.items():
        begun.append(trial(len(begun), SPACE.default(family), loss, TrialState.COMPLETE))
    begun.append(trial(len(begun), {**SPACE.default("dcnv2"), "dropout": 0.25}, 0.1, TrialState.COMPLETE))
    assert RACE.finalists(begun) == ["dnn", "deepfm"]


def test_large_logs_begin_with_the_point_that_is_held_back() -> None:
    comparison = FamilyComparison(SPACE.model_copy(update={"begins_held_back": True}), 1)
    begun = screenings(dlrm=0.9, dnn=0.7, deepfm=0.95, dcnv2=0.8)
    assert comparison.next(begun, NO_TIME) == SPACE.held_back("dnn")


def test_where_the_point_that_is_held_back_comes_less_far_than_the_look_the_defaults_are_first() -> None:
    comparison = FamilyComparison(SPACE.model_copy(update={"begins_held_back": True}), 1)
    begun = screenings(dlrm=0.75, dnn=0.7, deepfm=0.95, dcnv2=0.8)
    begun.append(trial(4, SPACE.held_back("dnn"), 0.85, TrialState.COMPLETE))
    rich = BudgetLeft(seconds=1_000.0)
    for family, loss in {"dlrm": 0.77, "dcnv2": 0.72, "deepfm": 0.94}.items():
        assert comparison.next(begun, rich) == SPACE.default(family)
        begun.append(trial(len(begun), SPACE.default(family), loss, TrialState.COMPLETE))
        assert comparison.is_final(len(begun) - 1, SPACE.default(family), begun)
    assert comparison.finalists(begun) == ["dnn", "dcnv2"]  # by the look of the first, and the training of the second
    for point in (SPACE.default("dnn"), SPACE.held_back("dcnv2")):
        assert comparison.next(begun, rich) == point
        begun.append(trial(len(begun), point, 0.9, TrialState.COMPLETE))
    assert comparison.next(begun, rich) is None
    assert comparison.finalists(begun) == ["dnn", "dcnv2"]


def test_where_it_comes_farther_it_is_the_first_of_all() -> None:
    comparison = FamilyComparison(SPACE.model_copy(update={"begins_held_back": True}), 1)
    begun = screenings(dlrm=0.75, dnn=0.7, deepfm=0.95, dcnv2=0.8)
    begun.append(trial(4, SPACE.held_back("dnn"), 0.6, TrialState.COMPLETE))
    assert comparison.next(begun, NO_TIME) == SPACE.held_back("dlrm")


def test_the_time_left_is_that_of_all_trials_that_run_at_a_time() -> None:
    begun = screenings(dlrm=0.9, dnn=0.7, deepfm=0.75, dcnv2=0.8)
    for family in ("dnn", "deepfm"):
        begun.append(trial(len(begun), SPACE.default(family), 0.6, TrialState.COMPLETE, seconds=10.0))
    # A third training of 10 seconds makes 34, a quarter of 136, of which 24 were used.
    assert RACE.next(begun, BudgetLeft(seconds=60.0)) == SPACE.held_back("dnn")
    assert RACE.next(begun, BudgetLeft(seconds=60.0, at_a_time=2)) == SPACE.default("dcnv2")


@pytest.mark.parametrize(
    ("rows", "trials", "schedule", "passes"),
    [
        (200_000, None, Schedule(max_epochs=9), 1),
        (80_000, 9, Schedule(max_epochs=9), 2),
        (2_000_000, None, Schedule(max_epochs=9, checks=(1 / 9, 1 / 3)), 1 / 9),
        (200_000, 5, Schedule(max_epochs=9), None),  # too few would be left
        (5_000, None, Schedule(max_epochs=9), None),  # a whole training is as short as a look
    ],
)
def test_a_look_is_of_equal_samples_where_that_saves_anything(
    rows: int, trials: int | None, schedule: Schedule, passes: float | None
) -> None:
    comparison = FamilyComparison.of(SPACE, rows, schedule, trials)
    assert (comparison.passes if comparison else None) == passes
    alone = SPACE.model_copy(update={"families": ("dlrm",)})
    assert FamilyComparison.of(alone, rows, schedule, trials) is None


def test_the_usual_trials_suffice_for_a_race_of_all_families() -> None:
    every = SPACE.model_copy(update={"families": (*auto_families(), "din")})
    assert FamilyComparison.of(every, 200_000, Schedule(max_epochs=9), PRESET_TRIALS[Preset.STANDARD]) is not None


def test_a_search_looks_at_all_and_draws_of_two(
    dataset: Dataset, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "LEAST_SAMPLES", dataset.splits["train"].rows)
    request = TrainRequest(trials=9, max_epochs=3, cold_start=True)
    placement = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
    result = search(search_job(dataset, request, tmp_path, parent, placement=placement, space=SPACE))
    by_trial = {setting.trial_number: setting for setting in result.settings}
    assert [by_trial[number].spec.family for number in range(4)] == list(SPACE.families)
    assert all(by_trial[number].is_pruned for number in range(4))
    best = sorted(range(4), key=lambda number: by_trial[number].validation_ne)[:2]
    kept = [by_trial[number].spec.family for number in best]
    assert [by_trial[number].spec.family for number in (4, 5, 6, 7)] == kept * 2
    assert not any(by_trial[number].is_pruned for number in (4, 5, 6, 7))
    assert by_trial[8].spec.family in kept
