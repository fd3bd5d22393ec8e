"""The four ways of voting, each by a case computed by hand, ties included."""

import numpy as np

from shunter.extensions.fleet.learned.networks import (
    STRATEGIES,
    boltzmann_addition,
    boltzmann_multiplication,
    majority,
    rank,
)

SURE_OF_FIRST = [0.90, 0.06, 0.04]
MEMBERS = np.array([SURE_OF_FIRST, [0.01, 0.55, 0.44], [0.01, 0.55, 0.44]])


def test_the_strategies_differ_where_one_member_is_sure_and_two_are_not() -> None:
    assert majority(MEMBERS) == 1
    assert boltzmann_addition(MEMBERS) == 1  # 0.92, 1.16, 0.92
    sure = np.array([[0.98, 0.01, 0.01], [0.3, 0.4, 0.3], [0.3, 0.4, 0.3]])
    assert majority(sure) == 1
    assert boltzmann_addition(sure) == 0
    assert boltzmann_multiplication(np.array([[0.6, 0.4], [0.6, 0.4], [0.0, 1.0]])) == 1  # one vetoes
    assert rank(np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.5, 0.4]])) == 1  # 5, 8, 5


def test_a_majority_tie_goes_to_the_larger_sum_and_equals_to_the_first() -> None:
    assert majority(np.array([[0.6, 0.4], [0.1, 0.9]])) == 1
    assert [vote(np.full((3, 4), 0.25)) for vote in STRATEGIES.values()] == [0, 0, 0, 0]
