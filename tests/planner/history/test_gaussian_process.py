"""Regression against what can be computed by hand, and lower bounds that teach only what they can."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import truncnorm

from shunter.planner.history.gaussian_process import Observations, Posterior, regress, similarity, with_lower_bounds


def kernel(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return similarity(first[:, 0], second[:, 0], 1.0)


def observed(*points: tuple[float, float], noise: float = 0.1) -> Observations:
    inputs, values = zip(*points, strict=True)
    return Observations(np.array(inputs)[:, None], np.array(values), np.full(len(points), noise))


def test_one_exact_observation_is_believed_and_its_neighbourhood_with_doubt() -> None:
    belief = regress(kernel, observed((0.0, 2.0), noise=1e-6), np.array([[0.0], [0.5], [10.0]]))
    assert belief.mean == pytest.approx([2.0, 2.0, 2.0])
    assert belief.deviation[0] == pytest.approx(0.0, abs=1e-3)
    assert belief.deviation[0] < belief.deviation[1] < belief.deviation[2]


def test_agrees_with_the_conditional_of_the_joint_normal() -> None:
    seen = observed((0.0, 1.0), (1.0, 3.0), noise=0.2)
    joint = kernel(np.array([[0.0], [1.0], [0.3]]), np.array([[0.0], [1.0], [0.3]])) + 25.0
    data = joint[:2, :2] + 0.04 * np.eye(2)
    weights = joint[2, :2] @ np.linalg.inv(data)
    belief = regress(kernel, seen, np.array([[0.3]]))
    assert belief.mean[0] == pytest.approx(2.0 + weights @ np.array([-1.0, 1.0]))
    assert belief.covariance[0, 0] == pytest.approx(joint[2, 2] - weights @ joint[2, :2], rel=1e-4)


def test_bound_is_worth_the_moments_of_the_truncated_normal() -> None:
    seen = observed((0.0, 1.0))
    before = regress(kernel, seen, np.array([[0.5]]))
    after = regress(
        kernel, with_lower_bounds(kernel, seen, np.array([[0.5]]), [before.mean[0] + 0.5], 0.0), np.array([[0.5]])
    )
    expected = truncnorm(0.5 / before.deviation[0], np.inf, loc=before.mean[0], scale=before.deviation[0])
    assert after.mean[0] == pytest.approx(expected.mean(), rel=1e-3)
    assert after.deviation[0] == pytest.approx(expected.std(), rel=1e-2)


@given(bound=st.floats(-5, 5))
def test_bound_never_lowers_the_belief_and_says_nothing_far_below_it(bound: float) -> None:
    seen = observed((0.0, 1.0), (3.0, 1.2))
    query = np.array([[1.0]])
    before = regress(kernel, seen, query)
    after = regress(kernel, with_lower_bounds(kernel, seen, query, [bound], 0.1), query)
    assert after.mean[0] >= before.mean[0] - 1e-9
    if bound < before.mean[0] - 6 * before.deviation[0]:
        assert after.mean[0] == pytest.approx(before.mean[0])


def test_draws_have_the_mean_and_covariance_of_the_belief() -> None:
    belief = Posterior(np.array([1.0, 2.0]), np.array([[1.0, 0.8], [0.8, 1.0]]))
    random = np.random.default_rng(0)
    draws = np.array([belief.draw(random) for _ in range(4000)])
    assert draws.mean(axis=0) == pytest.approx(belief.mean, abs=0.06)
    assert np.cov(draws.T) == pytest.approx(belief.covariance, abs=0.08)
