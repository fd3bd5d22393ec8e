"""Bounds of a promised quality: what they cover in a simulation, and what they are of known rows."""

import math

import numpy as np
import pytest

from shunter.engine.ensemble.guarantee import bounds
from shunter.engine.metrics import compute_metrics

CONFIDENCE, DRAWS = 0.95, 200
LEAST = CONFIDENCE - 2.33 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / DRAWS)  # of a bound that covers exactly so often


def drawn(rows: int, users: int | None, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Labels, scores that know a part of what made them, and users who click more or less all together."""
    random = np.random.default_rng(seed)
    known = 1.5 * random.normal(size=rows) - 1
    groups = None if users is None else random.integers(0, users, rows)
    hidden = np.zeros(rows) if groups is None or users is None else random.normal(size=users)[groups]
    labels = (random.random(rows) < 1 / (1 + np.exp(-known - hidden))).astype(np.float32)
    return labels, known, groups


@pytest.mark.parametrize("users", [pytest.param(None, marks=pytest.mark.long), 60])
def test_the_bounds_hold_in_their_share_of_many_draws(users: int | None) -> None:
    truth = compute_metrics(*drawn(200_000, None if users is None else 200_000, seed=1)[:2])
    found = [
        bounds(labels, scores, confidence=CONFIDENCE, groups=groups, resamples=100, seed=seed)
        for seed in range(DRAWS)
        for labels, scores, groups in [drawn(200, users, 100 + seed)]
    ]
    assert np.mean([one.auc_low <= truth.auc for one in found]) >= LEAST
    assert np.mean([one.delong_low <= truth.auc for one in found]) >= LEAST
    assert np.mean([one.ne_high >= truth.ne for one in found]) >= LEAST - 0.01  # of small samples a little less
    assert (
        np.mean([one.auc_low < one.auc - 0.01 for one in found]) > 0.99
    )  # not by being worthless, and none is a point


def test_figures_are_those_of_the_rows_whatever_their_order_and_ties() -> None:
    labels, scores, _ = drawn(400, None, 3)
    scores = np.round(scores, 1)
    found, metrics = bounds(labels, scores, confidence=0.9), compute_metrics(labels, scores)
    assert (found.auc, found.ne) == pytest.approx((metrics.auc, metrics.ne))
    assert found.auc_low < found.auc < found.auc_high
    assert found.ne_low < found.ne < found.ne_high
    order = np.random.default_rng(0).permutation(400)
    again = bounds(labels[order], scores[order], confidence=0.9)
    assert again.delong_low == pytest.approx(found.delong_low)


def test_more_confidence_promises_less_and_fewer_users_too() -> None:
    labels, scores, groups = drawn(600, 40, 5)
    lows = [bounds(labels, scores, confidence=share, groups=groups).auc_low for share in (0.8, 0.95, 0.99)]
    assert lows == sorted(lows, reverse=True)
    # Rows that come twice are no more evidence where their user is known.
    twice = bounds(
        *(np.repeat(one, 2) for one in (labels, scores)), confidence=0.9, groups=np.repeat(np.arange(600), 2)
    )
    assert twice.delong_low == pytest.approx(bounds(labels, scores, confidence=0.9).delong_low)


@pytest.mark.parametrize("rows", [0, 5])
def test_too_few_units_promise_nothing(rows: int) -> None:
    labels, scores = (np.arange(rows) % 2).astype(np.float32), np.arange(rows, dtype=float)
    if rows:
        assert math.isnan(bounds(labels, scores, confidence=0.9).auc_low)
    assert math.isnan(bounds(np.ones(100), np.arange(100.0), confidence=0.9).auc_low)
