"""The reward: hand-computed values, and in which direction each part moves it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.search.protocol import Cost, Outcome
from shunter.search.reward import FAILED_NE, reward


def outcome_of(ne: float | None, parameter_bytes: float | None = None, **violations: float) -> Outcome:
    costs: dict[Cost, float] = {} if parameter_bytes is None else {"parameter_bytes": parameter_bytes}
    return Outcome(state="failed" if ne is None else "complete", validation_ne=ne, costs=costs, violations=violations)


def test_without_a_cost_it_is_the_negative_ne():
    assert reward(outcome_of(0.8, 100.0)) == -0.8


def test_the_cost_counts_by_its_logarithm():
    twice_the_reference = reward(outcome_of(0.8, 200.0), reference_cost=100.0, cost="parameter_bytes", weight=0.1)

    assert twice_the_reference == pytest.approx(-(0.8 + 0.1 * math.log(2)))


def test_a_cost_that_was_not_measured_is_left_out():
    assert reward(outcome_of(0.8), reference_cost=100.0, cost="parameter_bytes") == -0.8


def test_a_failed_training_is_worth_less_than_a_useless_model():
    assert reward(outcome_of(None)) == -FAILED_NE < reward(outcome_of(1.0))


@given(small=st.floats(1e-6, 1e6), factor=st.floats(1.01, 1e3), ne=st.floats(0, 1), worse=st.floats(0, 1))
def test_a_broken_limit_outweighs_any_quality_and_more_of_it_is_worse(small, factor, ne, worse):
    broken = reward(outcome_of(ne, memory=small))

    assert broken < reward(outcome_of(worse, memory=-small))
    assert reward(outcome_of(ne, memory=small * factor)) < broken
