"""A search explores a placement by a trial that repeats another one there, and keeps all that was trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.errors import QualityNotReachedError
from shunter.requests import Limits, TrainRequest
from shunter.search.result import TuneResult
from shunter.search.search import search
from shunter.search.space.learning import rate_scale
from shunter.search.study.best_models import stored_trial_model
from shunter.search.study.pair import Pairing
from tests.search.spaces import PLACEMENT, search_job

LARGE = PLACEMENT.model_copy(update={"batch_size": 640})
LONG = 1e6  # times or seconds that no trial takes


def tune(
    dataset: Dataset, parent: str, folder: Path, pairing: Pairing | None, trials: int = 3, **options: Any
) -> TuneResult:
    request = TrainRequest(trials=trials, max_epochs=2, **options)
    return search(search_job(dataset, request, folder, parent, keep=9, pairing=pairing))


def test_one_extra_trial_repeats_the_best_setting_at_the_other_placement(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    alone = tune(dataset, parent, tmp_path / "alone", None)
    result = tune(dataset, parent, tmp_path / "pair", Pairing(LARGE, LONG))
    own = [one for one in result.settings if one.placement is None]
    (extra,) = (one for one in result.settings if one.placement is not None)
    assert [(one.spec, one.validation_ne) for one in own] == [(one.spec, one.validation_ne) for one in alone.settings]
    assert extra.placement == LARGE
    assert extra.trial_number == 3
    scale = rate_scale(640) / rate_scale(64)
    base = next(one for one in own if not one.is_pruned)
    rates = base.hyperparameters
    assert extra.spec == base.spec
    assert extra.hyperparameters == replace(
        rates,
        dense_learning_rate=scale * rates.dense_learning_rate,
        embedding_learning_rate=scale * rates.embedding_learning_rate,
    )
    assert stored_trial_model(tmp_path / "pair", 3)
    assert result.pair is not None
    assert (result.pair.placement, result.pair.beside, result.pair.is_stopped) == (LARGE, PLACEMENT, False)
    assert result.pair.ne_ratio == pytest.approx(extra.validation_ne / base.validation_ne)
    again = tune(dataset, parent, tmp_path / "pair", Pairing(LARGE, LONG))
    assert again.settings == result.settings
    assert again.pair == result.pair
    assert alone.pair is None


def test_extra_trial_follows_trials_that_ran_at_the_same_time(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    result = tune(dataset, parent, tmp_path, Pairing(LARGE, LONG), trials=4, parallel_trials=2)
    assert [one.trial_number for one in result.settings if one.placement is not None] == [4]
    assert result.pair is not None
    assert (result.pair.placement, result.pair.beside, result.pair.is_stopped) == (LARGE, PLACEMENT, False)


def test_extra_trial_ends_at_its_bound_and_keeps_what_it_reached(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    result = tune(dataset, parent, tmp_path, Pairing(LARGE, 1e-9))
    assert len(result.settings) in (3, 4)  # ended before its first validation, it has no result
    assert result.pair is None or result.pair.is_stopped
    assert result.stop_reason is None


def test_only_trial_explores_and_stays_where_it_is_good(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    result = tune(dataset, parent, tmp_path, Pairing(LARGE, 2.0, first_seconds=LONG), trials=1)
    assert [one.placement for one in result.settings] == [None]
    assert result.pair is None


def test_only_trial_that_misses_the_quality_is_repeated_at_the_best_known(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    pairing = Pairing(LARGE, 2.0, first_seconds=LONG)
    limits = Limits(min_auc=0.9999)
    with pytest.raises(QualityNotReachedError):
        tune(dataset, parent, tmp_path, pairing, trials=1, limits=limits)
    assert {int(path.name) for path in (tmp_path / "models").iterdir()} == {0, 1}  # both stay
