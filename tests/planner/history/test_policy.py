"""The rules' invariants, and what expected improvement is by integration."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from planner.history import Posterior, Strategy, choose_under_uncertainty, expected_improvement, knowledge_gradient
from shunter.errors import InfeasibleError

STRATEGIES = st.sampled_from(get_args(Strategy))
MEANS = st.lists(st.floats(-3, 3), min_size=1, max_size=8)


def belief(means: list[float], deviations: list[float]) -> Posterior:
    return Posterior(np.array(means), np.diag(np.square(deviations)))


@given(MEANS, STRATEGIES, st.data())
def test_excluded_option_is_never_taken(means: list[float], strategy: Strategy, data: st.DataObject) -> None:
    count = len(means)
    excluded = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    deviations = data.draw(st.lists(st.floats(0, 2), min_size=count, max_size=count))
    assume(not all(excluded))
    choice = choose_under_uncertainty(belief(means, deviations), excluded=excluded, strategy=strategy, seed=1)
    assert not excluded[choice.index]


@given(MEANS, STRATEGIES, st.integers(0, 2**32 - 1))
def test_full_information_takes_the_optimum(means: list[float], strategy: Strategy, seed: int) -> None:
    choice = choose_under_uncertainty(belief(means, [0.0] * len(means)), strategy=strategy, seed=seed)
    assert means[choice.index] == min(means)
    assert not choice.tries


@given(MEANS, STRATEGIES, st.integers(0, 2**32 - 1))
def test_same_belief_and_seed_give_the_same_choice(means: list[float], strategy: Strategy, seed: int) -> None:
    doubtful = belief(means, [0.5] * len(means))
    first, second = (choose_under_uncertainty(doubtful, strategy=strategy, seed=seed) for _ in range(2))
    assert first == second


@given(MEANS, STRATEGIES, st.data())
def test_order_of_the_options_does_not_matter(means: list[float], strategy: Strategy, data: st.DataObject) -> None:
    assume(strategy != "thompson")  # whose draws belong to positions
    assume(len(set(means)) == len(means))
    order = data.draw(st.permutations(range(len(means))))
    deviations = [0.1 * (index + 1) for index in range(len(means))]
    straight = choose_under_uncertainty(belief(means, deviations), strategy=strategy)
    mixed = choose_under_uncertainty(
        belief([means[position] for position in order], [deviations[position] for position in order]), strategy=strategy
    )
    assert order[mixed.index] == straight.index


@given(st.floats(-1, 1), st.floats(0.05, 1))
def test_expected_improvement_is_the_mean_of_what_is_saved(mean: float, deviation: float) -> None:
    assume(mean > -0.99)
    gains = expected_improvement(np.array([-1.0, mean]), np.array([0.2, deviation]), 0)
    saved, _ = quad(lambda x: (-1.0 - x) * norm.pdf(x, mean, deviation), -1.0 - 10 * deviation - 2, -1.0)
    assert gains == pytest.approx([0.0, saved], abs=1e-6)


def test_option_is_tried_only_while_the_saving_is_worth_it() -> None:
    doubtful = belief([0.0, 0.1], [0.0, 0.2])
    assert choose_under_uncertainty(doubtful).index == 1
    assert choose_under_uncertainty(doubtful).tries
    assert "11% more than the best known, give or take 22%" in choose_under_uncertainty(doubtful).reason
    assert choose_under_uncertainty(doubtful, least_gain=0.1).index == 0
    assert not choose_under_uncertainty(belief([0.0, 0.1], [0.0, 0.01])).tries


def test_what_all_options_have_in_common_is_no_reason_to_try_one() -> None:
    apart, common = np.diag([0.0, 0.2**2]), np.ones((2, 2))
    gains = [choose_under_uncertainty(Posterior(np.array([0.0, 0.1]), apart + level * common)) for level in (0.0, 1.0)]
    assert gains[0] == gains[1]
    alike = Posterior(np.array([0.0, 0.1]), common)
    assert not choose_under_uncertainty(alike).tries


def test_a_saving_is_counted_from_what_is_known_to_do() -> None:
    doubtful = belief([0.0, -0.5], [0.0, 0.2])
    assert choose_under_uncertainty(doubtful, best_known=0).tries
    assert not choose_under_uncertainty(doubtful).tries


def test_thompson_sampling_takes_each_as_often_as_it_is_best() -> None:
    doubtful = belief([0.0, 0.0, 3.0], [0.3, 0.3, 0.3])
    taken = [choose_under_uncertainty(doubtful, strategy="thompson", seed=seed).index for seed in range(400)]
    shares = np.bincount(taken, minlength=3) / 400
    assert shares == pytest.approx([0.5, 0.5, 0.0], abs=0.1)


def test_nothing_left_is_said() -> None:
    with pytest.raises(InfeasibleError, match="relax a limit"):
        choose_under_uncertainty(belief([0.0], [1.0]), excluded=[True])


def test_knowledge_gradient_is_what_an_observation_is_expected_to_save() -> None:
    """By drawing: the truth from the belief, what is observed of one option, and the least mean after it."""
    covariance = np.array([[0.04, 0.03, 0.0], [0.03, 0.09, 0.0], [0.0, 0.0, 0.01]])
    doubtful = Posterior(np.array([0.0, 0.1, 0.05]), covariance, noise=0.1)
    random = np.random.default_rng(0)
    truth = random.multivariate_normal(doubtful.mean, covariance, 100_000)
    for option, gain in enumerate(knowledge_gradient(doubtful)):
        seen = truth[:, option] + 0.1 * random.standard_normal(len(truth))
        slope = covariance[:, option] / (covariance[option, option] + 0.1**2)
        after = doubtful.mean + (seen - doubtful.mean[option])[:, None] * slope
        assert gain == pytest.approx(-after.min(axis=1).mean(), abs=2e-3)


def test_to_observe_what_is_known_teaches_nothing() -> None:
    known = Posterior(np.array([0.0, 0.1]), np.diag([0.0, 0.2**2]), noise=0.1)
    assert knowledge_gradient(known)[0] == 0.0
    assert knowledge_gradient(known)[1] > 0.01
