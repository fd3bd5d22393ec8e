"""The bins of the calibration picture: every row in one of them, means as they are, intervals that hold the truth."""

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binomtest

from shunter.reporting.card.calibration import (
    LEFT,
    SIDE,
    ReliabilityBin,
    calibration_svg,
    expected_calibration_error,
    reliability,
)
from shunter.statistics import wilson_interval


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), rows=st.integers(1, 200), levels=st.integers(1, 8))
def test_every_row_is_in_one_bin_and_equal_predictions_stay_together(seed: int, rows: int, levels: int) -> None:
    random = np.random.default_rng(seed)
    labels, logits = random.integers(0, 2, rows), random.integers(0, levels, rows).astype(np.float32)
    bins = reliability(labels, logits)
    assert sum(one.rows for one in bins) == rows
    assert sum(one.rows * one.base_rate for one in bins) == pytest.approx(labels.sum())
    assert sum(one.rows * one.mean_prediction for one in bins) == pytest.approx(expit(logits).sum(), rel=1e-6)
    assert len(bins) <= levels
    means = [one.mean_prediction for one in bins]
    assert means == sorted(means)


def test_perfect_predictions_have_next_to_no_error_and_shifted_ones_their_shift() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(0, 1, 100_000)
    labels = (random.random(100_000) < expit(logits)).astype(int)
    assert expected_calibration_error(reliability(labels, logits)) < 0.01
    always_half = np.zeros(100_000)
    rate = labels[labels >= 0].mean()
    assert expected_calibration_error(reliability(labels, always_half + 2)) == pytest.approx(abs(expit(2) - rate))


def test_interval_of_a_share_is_that_of_scipy() -> None:
    for positives, rows in ((0, 10), (3, 7), (400, 1000), (10, 10)):
        expected = binomtest(positives, rows).proportion_ci(method="wilson")
        assert wilson_interval(positives / rows, rows) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_interval_holds_the_share_of_rows_that_are_all_alike() -> None:
    for rows in range(1, 500):
        for share in (0.0, 1.0):
            low, high = wilson_interval(share, rows)
            assert 0 <= low <= share <= high <= 1


def test_picture_shows_one_point_a_bin() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(-4, 1, 3_000)
    bins = reliability((random.random(3_000) < expit(logits)).astype(int), logits)
    drawing = ElementTree.fromstring(calibration_svg(bins, "a < b"))
    points = [float(point.attrib["cx"]) for point in drawing.findall(".//{*}circle")]
    assert len(points) == len(bins)
    assert points == sorted(points)
    assert points[-1] > LEFT + 0.5 * SIDE, "the axis ends at the largest prediction, not at 1"


def test_picture_of_negative_numbers_holds_all_points() -> None:
    bins = tuple(
        ReliabilityBin(rows=5, mean_prediction=value, base_rate=value, low=value - 0.1, high=value + 0.1)
        for value in (-40.0, -20.0)
    )
    points = ElementTree.fromstring(calibration_svg(bins, "title", is_number=True)).findall(".//{*}circle")
    assert all(LEFT <= float(point.attrib["cx"]) <= LEFT + SIDE for point in points)


@pytest.mark.parametrize("is_number", [False, True])
def test_picture_of_equal_predictions(is_number: bool) -> None:
    bins = (ReliabilityBin(rows=5, mean_prediction=0.0, base_rate=0.0, low=0.0, high=0.0),)
    assert ElementTree.fromstring(calibration_svg(bins, "title", is_number=is_number)).findall(".//{*}circle")
