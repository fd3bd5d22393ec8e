"""What the search hands on: old results can be read, and who is trained to the end."""

from typing import Any

from shunter.engine.config import Hyperparameters
from shunter.models.registry import model_spec
from shunter.search.result import Setting, TuneResult


def setting(number: int, **others: Any) -> Setting:
    return Setting(
        spec=model_spec(),
        hyperparameters=Hyperparameters(),
        validation_ne=0.8,
        trial_number=number,
        is_pruned=False,
        **others,
    )


def result(*settings: Setting) -> TuneResult:
    return TuneResult(
        settings=settings,
        complete_trials=len(settings),
        pruned_trials=0,
        failed_trials=0,
        resumed_trials=0,
        stop_reason=None,
    )


def test_a_result_of_an_earlier_version_can_be_read() -> None:
    new = result(setting(0))
    kept = new.model_dump(mode="json")
    names = ("settings", "complete_trials", "pruned_trials", "failed_trials", "resumed_trials", "stopped_because")
    old = {name: kept[name] for name in names}
    first = ("spec", "hyperparameters", "validation_ne", "trial_number", "is_pruned")
    old["settings"] = [{name: one[name] for name in first} for one in old["settings"]]
    assert TuneResult.model_validate(old) == new
    assert new.best.is_feasible


def test_only_settings_that_keep_the_limits_are_trained_to_the_end() -> None:
    good, slow, bad = setting(0), setting(1, violations={"max_hours": 1.0}), setting(2, violations={"min_auc": 0.1})
    assert result(good, slow, bad).winners == (good,)
    assert result(slow, bad).winners == (slow,)  # by an estimate only: that training stops at the limit


def test_what_the_user_selects_by_ranks_and_is_named() -> None:
    better = setting(0, selected=0.02)
    told = result(better).model_copy(update={"select_by": "auc"})
    assert better.loss == 0.02
    assert told.best_quality == "AUC 0.9800"
    assert result(setting(1)).best_quality == "NE 0.8000"
    assert result(setting(1)).model_copy(update={"is_number": True}).best_quality == "relative loss 0.8000"
