"""Weights of an ensemble as a pure function: what holds for any members, and what comes out for planted ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.ensemble.selection import SMALLEST_WEIGHT, fit_weights, halves
from shunter.engine.metrics import compute_metrics
from tests.engine.ensemble.planted import planted


@settings(max_examples=15, deadline=None)
@given(
    members=st.integers(1, 5),
    rows=st.integers(20, 300),
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.1, 1, 30]),
)
def test_weights_are_a_mixture_no_worse_than_any_member(members: int, rows: int, seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    labels = (random.random(rows) < 0.3).astype(np.float32)
    logits = random.normal(0, scale, (members, rows))
    weights = fit_weights(labels, logits)
    assert weights.sum() == pytest.approx(1)
    assert ((weights == 0) | (weights >= SMALLEST_WEIGHT)).all()
    best = min(compute_metrics(labels, row).logloss for row in logits)
    # Leaving out the smallest shares may cost a little against the exact optimum.
    assert compute_metrics(labels, weights @ logits).logloss <= best * 1.02 + 1e-6


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(0, 400), positives=st.floats(0, 1), seed=st.integers(0, 10_000))
def test_halves_part_the_rows_with_equal_shares_of_positives(rows: int, positives: float, seed: int) -> None:
    labels = (np.arange(rows) < positives * rows).astype(np.float32)
    first, second = halves(labels, seed)
    assert sorted([*first, *second]) == list(range(rows))
    assert abs(labels[first].sum() - labels[second].sum()) <= 1
    assert 0 <= len(first) - len(second) <= 1


def test_independent_members_of_equal_quality_share_equally() -> None:
    labels, logits = planted(20_000, [1.0, 1.0])
    assert fit_weights(labels, logits) == pytest.approx([0.5, 0.5], abs=0.05)


def test_two_members_get_the_weights_of_a_fine_grid() -> None:
    labels, logits = planted(2_000, [0.7, 1.5])
    grid = np.linspace(0, 1, 1_001)
    losses = [compute_metrics(labels, share * logits[0] + (1 - share) * logits[1]).logloss for share in grid]
    assert fit_weights(labels, logits)[0] == pytest.approx(grid[int(np.argmin(losses))], abs=2e-3)


def test_of_few_rows_weights_are_pulled_to_equal_ones_and_of_many_hardly() -> None:
    labels, logits = planted(50_000, [0.7, 1.5])
    for rows, least in ((40, 0.0), (50_000, 0.9)):
        plain, pulled = (fit_weights(labels[:rows], logits[:, :rows], pull=pull)[0] - 0.5 for pull in (0.0, 30.0))
        assert least * plain <= pulled < plain
    weights = np.where(np.arange(50_000) < 40, 1.0, 0.0)  # rows that do not count bring no certainty
    few = fit_weights(labels[:40], logits[:, :40], pull=30.0)
    assert fit_weights(labels, logits, weights, pull=30.0) == pytest.approx(few, abs=1e-4)
