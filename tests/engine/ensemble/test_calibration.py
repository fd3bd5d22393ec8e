"""Calibrations against scikit-learn's."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from shunter.engine.ensemble.calibration import fit_line, fit_steps
from tests.engine.ensemble.planted import planted


def test_a_line_is_that_of_a_logistic_regression() -> None:
    labels, logits = planted(3_000, [1.0, 2.0])
    weights = np.random.default_rng(0).uniform(0.5, 2, 3_000)
    found, intercept = fit_line(labels, 3 * logits - 1, weights)
    reference = LogisticRegression(C=np.inf, tol=1e-8).fit(3 * logits.T - 1, labels, weights)
    assert found == pytest.approx(reference.coef_[0], abs=1e-4)
    assert intercept == pytest.approx(float(reference.intercept_[0]), abs=1e-4)


def test_no_coefficient_is_negative() -> None:
    labels, logits = planted(1_000, [0.5, 0.5])
    found, _ = fit_line(labels, np.stack([logits[0], -logits[1]]), np.ones(1_000))
    assert found[0] > 0
    assert found[1] == 0


def test_steps_are_those_of_isotonic_regression_but_for_one_row_of_the_base_rate() -> None:
    labels, (logits,) = planted(5_000, [0.7])
    logits = np.round(logits, 1)  # with ties
    at, odds = np.array(fit_steps(labels, logits, np.ones(5_000))).T
    assert (np.diff(at) > 0).all()
    assert (np.diff(odds) >= 0).all()
    reference = IsotonicRegression().fit(logits, labels)
    inner = slice(2, -2)
    assert 1 / (1 + np.exp(-odds[inner])) == pytest.approx(reference.predict(at[inner]), abs=0.02)
    assert np.isfinite(odds).all()
