"""Which snapshots are chosen: against every subset tried, and against what was planted."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from scheduler.learned.networks import draw_weights
from scheduler.learned.planner import AGENTS, JOB
from scheduler.learning.rollouts import Choice
from scheduler.learning.seerl import differences, enumerated, normalised, select, value_of


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    one = draw.random((count, count))
    return draw.random(count), np.triu(one, 1) + np.triu(one, 1).T


@settings(max_examples=60, deadline=None)
@given(seed=some.integers(0, 10**6), count=some.integers(2, 8), size=some.integers(1, 4))
def test_the_program_comes_close_to_the_best_of_all_subsets(seed: int, count: int, size: int) -> None:
    errors, differing = normalised(*drawn(count, seed))
    chosen, best = select(errors, differing, size), enumerated(errors, differing, size)
    assert len(set(chosen)) == min(size, count)
    assert value_of(chosen, errors, differing) <= value_of(best, errors, differing) + 0.12


def test_the_program_mostly_finds_the_best_subset() -> None:
    cases = [normalised(*drawn(8, seed)) for seed in range(60)]
    hits = sum(
        value_of(select(e, k, 4), e, k) <= value_of(enumerated(e, k, 4), e, k) + 1e-9 for e, k in cases
    )  # fmt: skip
    assert hits >= 45


def test_planted_snapshots_that_are_good_and_differ_are_found() -> None:
    errors = np.array([0.1, 0.1, 0.1, 0.9, 0.9, 0.1])
    differing = np.ones((6, 6)) - np.eye(6)
    differing[5, 0] = differing[0, 5] = 0.0  # the last is a copy of the first
    assert set(select(errors, differing, 3)) in ({0, 1, 2}, {1, 2, 5})


def test_extreme_difference_brings_no_more_than_much() -> None:
    errors, differing = drawn(6, 3)
    differing[0, 1] = differing[1, 0] = 1000.0
    _, cut = normalised(errors, differing)
    assert cut.max() == 1.0


def test_a_snapshot_does_not_differ_from_itself_and_differences_are_mutual() -> None:
    one, other = draw_weights(AGENTS, 8, 0), draw_weights(AGENTS, 8, 1)
    draw = np.random.default_rng(0)
    choices = [Choice(JOB, draw.normal(size=(4, AGENTS[JOB])).astype(np.float32), 0, 0.0, 0.0) for _ in range(5)]
    found = differences([one, one, other], choices)
    assert found[0, 1] == 0.0
    assert found[0, 2] == found[2, 0] > 0.0
