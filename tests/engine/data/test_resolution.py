"""How many positives tell models apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.data.resolution import AUC_APART, auc_error, positives_needed


def test_error_against_drawing() -> None:
    """Exponential scores have an AUC of .75 where those of positives are three times as large on average."""
    random = np.random.default_rng(0)
    aucs = []
    for _ in range(2_000):
        positives, negatives = random.exponential(3, 40), random.exponential(1, 400)
        aucs.append((positives[:, None] > negatives[None, :]).mean())

    assert np.mean(aucs) == pytest.approx(0.75, abs=0.005)
    assert np.std(aucs) == pytest.approx(auc_error(40, 400), rel=0.1)


@given(st.integers(1, 10_000), st.integers(2, 1_000_000))
def test_what_is_needed_is_enough_and_no_more(positives: int, rows: int) -> None:
    positives = min(positives, rows - 1)
    needed = positives_needed(positives, rows)
    share = positives / rows

    assert auc_error(needed, round(needed / share) - needed) <= AUC_APART * 1.1
    assert auc_error(max(0, needed - 3), round((needed - 3) / share) - needed + 3) > AUC_APART * 0.8
