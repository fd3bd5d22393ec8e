"""Metrics against scikit-learn and against their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from shunter.engine.metrics import area_under_roc, compute_metrics, grouped_area_under_roc
from shunter.errors import DataError


@settings(deadline=None)
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


WEIGHTED_ROWS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(-3, 3) | st.floats(-15, 15),
        st.sampled_from([0.0, 0.25, 1.0, 7.0]) | st.floats(0.01, 100),
    ),
    min_size=2,
    max_size=60,
)


@settings(deadline=None)
@given(rows=WEIGHTED_ROWS.filter(lambda rows: len({label for label, _, weight in rows if weight}) == 2))
def test_weighted_equal_to_scikit_learn_with_and_without_ties(rows: list[tuple[int, float, float]]) -> None:
    labels, logits, weights = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    metrics = compute_metrics(labels, logits, weights)
    assert metrics.auc == pytest.approx(roc_auc_score(labels, logits, sample_weight=weights), abs=1e-9)
    probabilities = np.clip(1 / (1 + np.exp(-logits)), 1e-15, 1 - 1e-15)
    expected = log_loss(labels, probabilities, sample_weight=weights)
    assert metrics.logloss == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert metrics.calibration == pytest.approx((weights @ probabilities) / (weights @ labels))
    assert metrics.rows == (weights > 0).sum()


@settings(deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 1), st.floats(-8, 8), st.integers(0, 5)), min_size=1, max_size=40))
def test_whole_weights_count_like_copies_whatever_the_classes(rows: list[tuple[int, float, int]]) -> None:
    labels, logits, weights = (np.array(column) for column in zip(*rows, strict=True))
    if not weights.any():
        assert math.isnan(compute_metrics(labels, logits, weights).logloss)
        return
    weighted = compute_metrics(labels, logits, weights)
    copies = compute_metrics(labels.repeat(weights), logits.repeat(weights))
    for name in ("auc", "logloss", "ne", "calibration", "base_rate"):
        assert getattr(weighted, name) == pytest.approx(getattr(copies, name), rel=1e-9, nan_ok=True), name


def test_a_class_whose_weights_are_zero_is_absent() -> None:
    metrics = compute_metrics(np.array([1, 0, 0]), np.array([0.5, 0.1, 2.0]), np.array([0.0, 1.0, 2.0]))
    assert math.isnan(metrics.auc)
    assert math.isnan(metrics.ne)
    assert metrics.base_rate == 0
    assert metrics.rows == 2


@pytest.mark.parametrize("weighted", [False, True])
def test_normalised_entropy_is_that_of_torchrec(weighted: bool) -> None:
    ne = pytest.importorskip("torchrec.metrics.ne")
    random = np.random.default_rng(3)
    logits = random.normal(size=500)
    labels = (random.random(500) < 0.2).astype(np.float64)
    weights = random.choice([0.0, 0.3, 5.0], 500) if weighted else np.ones(500)
    given = [torch.from_numpy(one)[None] for one in (labels, 1 / (1 + np.exp(-logits)), weights)]
    states = ne.get_ne_states(*given, 1e-12)
    names = ("cross_entropy_sum", "weighted_num_samples", "pos_labels", "neg_labels")
    expected = ne.compute_ne(*(states[name] for name in names), eta=1e-12).item()
    found = compute_metrics(labels, logits, weights if weighted else None).ne
    assert found == pytest.approx(expected, rel=1e-9)


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


@settings(deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 1), st.integers(-2, 2), st.sampled_from([3, 8, 1_000]), st.sampled_from([0.0, 1.0, 2.5])
        ),
        min_size=1,
        max_size=40,
    ),
    are_weighted=st.booleans(),
)
def test_the_auc_by_user_is_the_mean_of_scikit_learns_weighed_by_rows(
    rows: list[tuple[int, int, int, float]], are_weighted: bool
) -> None:
    labels, scores, users, weights = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    weights = weights if are_weighted else np.ones(len(labels))
    total, impressions = 0.0, 0.0
    for user in set(users):
        own = (users == user) & (weights > 0)
        if len(set(labels[own])) == 2:
            total += weights[own].sum() * roc_auc_score(labels[own], scores[own], sample_weight=weights[own])
            impressions += weights[own].sum()
    found = grouped_area_under_roc(labels, scores, users.astype(np.int64), weights if are_weighted else None)
    assert found == pytest.approx(total / impressions if impressions else math.nan, abs=1e-12, nan_ok=True)


def test_the_auc_by_user_does_not_count_that_users_differ() -> None:
    labels, users = np.array([0, 1, 1, 1, 0, 0, 0, 1]), np.repeat([1, 2], 4)
    by_user_alone = np.where(users == 1, 1.0, -1.0)
    assert area_under_roc(labels, by_user_alone) == 0.75
    assert grouped_area_under_roc(labels, by_user_alone, users) == 0.5
    assert math.isnan(grouped_area_under_roc(labels, np.full(8, math.nan), users))
    assert math.isnan(grouped_area_under_roc(labels, by_user_alone, np.arange(8)))
