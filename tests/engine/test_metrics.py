"""Metrics against scikit-learn and against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from engine.metrics import area_under_roc, compute_metrics
from shunter.errors import DataError


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 1), st.integers(-3, 3) | st.floats(-15, 15)), min_size=2, max_size=60
    ).filter(lambda rows: len({label for label, _ in rows}) == 2)
)
def test_equal_to_scikit_learn_with_and_without_ties(rows: list[tuple[int, float]]) -> None:
    labels, logits = np.array([r[0] for r in rows]), np.array([r[1] for r in rows], dtype=np.float64)
    metrics = compute_metrics(labels, logits)
    assert metrics.auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)
    probabilities = np.clip(1 / (1 + np.exp(-logits)), 1e-15, 1 - 1e-15)
    assert metrics.logloss == pytest.approx(log_loss(labels, probabilities), rel=1e-6, abs=1e-9)
    assert metrics.calibration == pytest.approx(probabilities.mean() / labels.mean())


def test_equal_to_scikit_learn_on_many_rows() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=20_000).astype(np.float32)
    labels = (random.random(20_000) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    assert compute_metrics(labels, logits).auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)


def test_predicting_the_base_rate_has_a_normalised_entropy_of_one() -> None:
    labels = np.array([1, 0, 0, 0])
    metrics = compute_metrics(labels, np.full(4, math.log(0.25 / 0.75)))
    assert metrics.ne == pytest.approx(1)
    assert metrics.calibration == pytest.approx(1)
    assert metrics.auc == 0.5
    assert metrics.base_rate == 0.25
    assert metrics.rows == 4


@pytest.mark.parametrize("label", [0, 1])
def test_a_single_class_has_no_ranking_and_no_entropy(label: int) -> None:
    metrics = compute_metrics(np.full(3, label), np.zeros(3))
    assert math.isnan(metrics.auc)
    assert math.isnan(metrics.ne)
    assert metrics.logloss == pytest.approx(math.log(2))
    assert math.isnan(metrics.calibration) == (label == 0)


def test_extreme_logits_stay_finite() -> None:
    metrics = compute_metrics(np.array([1, 0]), np.array([-1e4, 1e4], dtype=np.float32))
    assert metrics.logloss == pytest.approx(1e4)


def test_a_score_that_is_no_number_has_no_ranking() -> None:
    assert math.isnan(area_under_roc(np.array([0.0, 1.0]), np.array([math.nan, 1.0])))


def test_no_row_is_an_error() -> None:
    with pytest.raises(DataError, match="no row"):
        compute_metrics(np.empty(0), np.empty(0))
