"""Which members are chosen: against every subset tried, and against what was planted."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from shunter.engine.ensemble.selection import disagreement, enumerated, greedy, normalised, select, value_of


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    one = draw.random((count, count))
    return draw.random(count), np.triu(one, 1) + np.triu(one, 1).T


@settings(max_examples=30, deadline=None)
@given(seed=some.integers(0, 10**6), count=some.integers(2, 8), size=some.integers(1, 4))
def test_the_program_comes_close_to_the_best_of_all_subsets(seed: int, count: int, size: int) -> None:
    errors, differing = normalised(*drawn(count, seed))
    chosen, best = select(errors, differing, size), enumerated(errors, differing, size)
    assert len(set(chosen)) == min(size, count)
    assert value_of(chosen, errors, differing) <= value_of(best, errors, differing) + 0.06


def test_the_program_mostly_finds_the_best_subset() -> None:
    cases = [normalised(*drawn(8, seed)) for seed in range(60)]
    hits = sum(
        value_of(select(e, k, 4), e, k) <= value_of(enumerated(e, k, 4), e, k) + 1e-9 for e, k in cases
    )  # fmt: skip
    assert hits >= 58


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


def test_disagreement_is_the_divergence_of_the_probabilities() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (3, 50))
    shares = 1 / (1 + np.exp(-logits))

    def divergence(p: np.ndarray, q: np.ndarray) -> float:
        return float(np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))))

    found = disagreement(logits)
    assert (found == found.T).all()
    assert (np.diag(found) == 0).all()
    for i in range(3):
        for j in range(3):
            both = divergence(shares[i], shares[j]) + divergence(shares[j], shares[i])
            np.testing.assert_allclose(found[i, j], both / 2, atol=1e-12)


def test_greedy_takes_what_helps_and_no_more_than_asked() -> None:
    draw = np.random.default_rng(0)
    truth = draw.normal(0, 2, 4_000)
    labels = (draw.random(4_000) < 1 / (1 + np.exp(-truth))).astype(np.float32)
    logits = truth + np.array([[0.5], [0.5], [0.5], [6.0]]) * draw.normal(size=(4, 4_000))
    weights = greedy(labels, logits, None, None)
    np.testing.assert_allclose(weights.sum(), 1)
    assert (weights[:3] > 0).all()
    assert weights[3] == 0
    assert np.count_nonzero(greedy(labels, logits, None, 2)) == 2
    twice = greedy(labels, logits, np.full(4_000, 3.0), None)
    np.testing.assert_allclose(twice, weights)


def test_greedy_is_no_worse_than_the_best_member() -> None:
    draw = np.random.default_rng(1)
    labels, logits = (draw.random(200) < 0.3).astype(np.float32), draw.normal(0, 1, (4, 200))

    def loss(mean: np.ndarray) -> float:
        return float((np.logaddexp(0.0, mean) - labels * mean).mean())

    assert loss(greedy(labels, logits, None, None) @ logits) <= min(map(loss, logits))
