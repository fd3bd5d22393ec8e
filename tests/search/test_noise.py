"""What chance does to a search's figure, from trainings that differ in their seed alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shunter.engine.stopping import StopKind, StopReason
from shunter.search.noise import noise_of


def trained(setting: int, seed: int, ne: float, kind: StopKind = StopKind.PATIENCE) -> Any:
    """A finished training, as far as it is looked at."""
    return SimpleNamespace(
        spec=setting,
        hyperparameters=0,
        schedule=SimpleNamespace(seed=seed),
        validation=SimpleNamespace(loss_by=lambda by: ne),
        stop_reason=StopReason(kind),
    )


def test_what_a_limit_cut_off_tells_nothing_of_chance() -> None:
    whole = [trained(0, seed, 0.5 + 0.01 * seed) for seed in range(2)]
    cut = trained(0, 2, 0.9, StopKind.SEARCH_BUDGET)
    assert noise_of([*whole, cut], "ne") == noise_of(whole, "ne") is not None


def test_deviation_is_pooled_over_settings() -> None:
    random = np.random.default_rng(0)
    runs = [trained(setting, seed, setting + random.normal(0, 0.1)) for setting in range(40) for seed in range(3)]

    noise = noise_of(runs, "ne")

    assert noise is not None
    assert noise.trainings == 120
    assert noise.deviation == pytest.approx(0.1, rel=0.15)
    expected = np.sqrt(
        np.mean([np.var([run.validation.loss_by("ne") for run in runs[i : i + 3]], ddof=1) for i in range(0, 120, 3)])
    )
    assert noise.deviation == pytest.approx(expected)


def test_other_settings_and_the_same_seed_say_nothing() -> None:
    assert noise_of([trained(0, 0, 0.5), trained(1, 1, 0.7), trained(0, 0, 0.5)], "ne") is None


def test_ties_are_counted_against_the_best() -> None:
    noise = noise_of([trained(0, 0, 0.50), trained(0, 1, 0.52)], "ne")
    assert noise is not None
    settings = [SimpleNamespace(loss=loss) for loss in (0.5, 0.53, 0.6)]
    tuned: Any = SimpleNamespace(winners=settings, best=settings[0])
    assert noise.tied(tuned) == 2
