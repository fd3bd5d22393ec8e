"""What is believed after some trials, with a past that tells, misleads, or is not there."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from shunter.extensions.meta_learning import transfer
from shunter.extensions.meta_learning.transfer import LEVEL, Hypothesis, Seen, predict_values

LENGTHS = np.array([1.0, 1.0])


def seen(points: np.ndarray, *predicted: np.ndarray) -> Seen:
    return Seen(points, np.stack(predicted, axis=1) if predicted else np.zeros((len(points), 0)))


def test_without_a_past_it_is_a_gaussian_process(monkeypatch: pytest.MonkeyPatch) -> None:
    only = Hypothesis(share=0.0, stretch=1.0, amplitude=0.5, noise=0.1)
    monkeypatch.setattr(transfer, "hypotheses", lambda studies, noises: [only])
    random = np.random.default_rng(0)
    told, asked, values = random.uniform(0, 1, (8, 2)), random.uniform(0, 1, (5, 2)), random.normal(0, 1, 8)
    mean, deviation = predict_values(seen(told), values, seen(asked), lengths=LENGTHS, nearness=np.zeros(0))
    kernel = ConstantKernel(0.25, "fixed") * Matern(1.0, "fixed", nu=2.5) + ConstantKernel(LEVEL**2, "fixed")
    other = GaussianProcessRegressor(kernel, alpha=0.01).fit(told, values)
    expected, spread = other.predict(asked, return_std=True)[:2]
    assert mean == pytest.approx(expected)
    assert deviation == pytest.approx(spread)


def test_a_past_that_explains_the_trials_is_followed_and_one_that_does_not_is_left() -> None:
    random = np.random.default_rng(0)
    told, asked = random.uniform(0, 1, (12, 6)), random.uniform(0, 1, (200, 6))
    truth = [np.sin(5 * points).sum(axis=1) for points in (told, asked)]
    noise = [random.normal(0, 1, len(points)) for points in (told, asked)]
    lengths = np.full(6, 0.5)

    def error(*past: list[np.ndarray]) -> float:
        first, second = (seen(points, *(one[place] for one in past)) for place, points in enumerate((told, asked)))
        mean, _ = predict_values(first, truth[0], second, lengths=lengths, nearness=np.ones(len(past)))
        return float(np.abs(mean - truth[1]).mean())

    assert error(truth) < 0.2 * error()
    assert error(noise) < 1.2 * error()
    assert error(truth, noise) < 0.6 * error()  # it finds out which of the two


def test_before_any_trial_the_past_alone_speaks() -> None:
    random = np.random.default_rng(0)
    points, predicted = random.uniform(0, 1, (6, 2)), random.normal(0, 1, 6)
    none = seen(np.zeros((0, 2)), np.zeros(0))
    mean, deviation = predict_values(none, np.zeros(0), seen(points, predicted), lengths=LENGTHS, nearness=np.ones(1))
    assert np.corrcoef(mean, predicted)[0, 1] == pytest.approx(1)
    assert (deviation >= LEVEL).all()


def test_the_nearer_study_speaks_louder() -> None:
    points = np.array([[0.2, 0.2], [0.8, 0.8]])
    none = seen(np.zeros((0, 2)), np.zeros(0), np.zeros(0))
    asked = seen(points, np.array([-1.0, 1.0]), np.array([1.0, -1.0]))
    mean, _ = predict_values(none, np.zeros(0), asked, lengths=LENGTHS, nearness=np.array([0.9, 0.3]))
    assert mean[0] < mean[1]
