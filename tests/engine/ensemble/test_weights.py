"""Weights of an ensemble as a pure function: what holds for any members, and what comes out for planted ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.ensemble.weights import SMALLEST_WEIGHT, fit_weights, halves, judge
from engine.metrics import compute_metrics


def planted(rows: int, noises: list[float], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and members that see the true log odds through independent noise of the given deviations."""
    random = np.random.default_rng(seed)
    truth = random.normal(0, 2, rows)
    labels = (random.random(rows) < 1 / (1 + np.exp(-truth))).astype(np.float32)
    return labels, np.stack([truth + random.normal(0, noise, rows) for noise in noises])


@settings(max_examples=30, deadline=None)
@given(
    members=st.integers(1, 5),
    rows=st.integers(20, 300),
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.1, 1, 30]),
)
def test_weights_are_a_mixture_no_worse_than_any_member(members: int, rows: int, seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    labels = (random.random(rows) < 0.3).astype(np.float32)
    logits = random.normal(0, scale, (members, rows))
    weights = fit_weights(labels, logits)
    assert weights.sum() == pytest.approx(1)
    assert ((weights == 0) | (weights >= SMALLEST_WEIGHT)).all()
    best = min(compute_metrics(labels, row).logloss for row in logits)
    # Leaving out the smallest shares may cost a little against the exact optimum.
    assert compute_metrics(labels, weights @ logits).logloss <= best * 1.02 + 1e-6


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(0, 400), positives=st.floats(0, 1), seed=st.integers(0, 10_000))
def test_halves_part_the_rows_with_equal_shares_of_positives(rows: int, positives: float, seed: int) -> None:
    labels = (np.arange(rows) < positives * rows).astype(np.float32)
    first, second = halves(labels, seed)
    assert sorted([*first, *second]) == list(range(rows))
    assert abs(labels[first].sum() - labels[second].sum()) <= 1
    assert 0 <= len(first) - len(second) <= 1


def test_independent_members_of_equal_quality_share_equally() -> None:
    labels, logits = planted(20_000, [1.0, 1.0])
    assert fit_weights(labels, logits) == pytest.approx([0.5, 0.5], abs=0.05)


def test_two_members_get_the_weights_of_a_fine_grid() -> None:
    labels, logits = planted(2_000, [0.7, 1.5])
    grid = np.linspace(0, 1, 1_001)
    losses = [compute_metrics(labels, share * logits[0] + (1 - share) * logits[1]).logloss for share in grid]
    assert fit_weights(labels, logits)[0] == pytest.approx(grid[int(np.argmin(losses))], abs=2e-3)


def test_ensemble_of_independent_members_is_kept_and_better_on_unseen_rows() -> None:
    labels, logits = planted(6_000, [1.5, 1.5, 1.5])
    verdict = judge(labels[:4_000], logits[:, :4_000], seed=1)
    assert verdict.is_ensemble
    assert verdict.ensemble is not None
    assert verdict.single is not None
    assert verdict.ensemble.rows == verdict.single.rows == 2_000
    unseen_labels, unseen = labels[4_000:], logits[:, 4_000:]
    assert (
        compute_metrics(unseen_labels, verdict.weights @ unseen).logloss
        < compute_metrics(unseen_labels, unseen[verdict.best_single]).logloss
    )


def test_single_is_kept_when_the_others_are_noise() -> None:
    random = np.random.default_rng(0)
    labels, good = planted(2_000, [0.1])
    verdict = judge(labels, np.vstack([random.normal(0, 3, (2, 2_000)), good]), seed=0)
    assert not verdict.is_ensemble
    assert verdict.weights.tolist() == [0, 0, 1]
    assert verdict.best_single == 2


def test_copies_of_one_member_make_no_ensemble_worth_keeping() -> None:
    """A mixture of copies is the copy: not better, so the single is the result."""
    labels, logits = planted(500, [1.0])
    verdict = judge(labels, np.vstack([logits, logits]), seed=0)
    assert not verdict.is_ensemble


def test_judged_rows_did_not_fit_the_weights() -> None:
    """Labels of the judged half are turned over: the weights must not notice."""
    labels, logits = planted(1_000, [0.8, 1.2])
    fitted, judged = halves(labels, seed=3)
    weights = fit_weights(labels[fitted], logits[:, fitted])
    corrupted = logits.copy()
    corrupted[:, judged] *= -1
    assert fit_weights(labels[fitted], corrupted[:, fitted]) == pytest.approx(weights)
    verdict = judge(labels, logits, seed=3)
    assert verdict.weights == pytest.approx(weights)
    assert verdict.ensemble == compute_metrics(labels[judged], weights @ logits[:, judged])


def test_one_member_needs_no_judgement() -> None:
    labels, logits = planted(100, [1.0])
    verdict = judge(labels, logits, seed=0)
    assert verdict.weights.tolist() == [1]
    assert verdict.ensemble is None
    assert verdict.single is None


def test_the_figure_that_selects_picks_the_single_and_judges_the_ensemble() -> None:
    labels, (sharp, dull) = planted(4_000, [0.2, 0.6])
    logits = np.stack([5 * sharp, dull])  # the first ranks best, and is far too sure of itself
    assert judge(labels, logits, seed=0).best_single == 1
    verdict = judge(labels, logits, seed=0, select_by="auc")
    assert verdict.best_single == 0
    assert verdict.ensemble is not None
    assert verdict.single is not None
    assert verdict.is_ensemble == (verdict.ensemble.auc > verdict.single.auc)


def test_what_is_too_sure_of_itself_is_scaled_where_it_was_not_fitted() -> None:
    """The planted log odds are right, so that four times of them want to be divided by four again."""
    labels, logits = planted(20_000, [0.0])
    verdict = judge(labels, 4 * logits, seed=0)
    assert verdict.scale == pytest.approx(0.25, rel=0.1)
    plain = judge(labels, logits, seed=0)
    assert plain.scale == 1


def test_a_scale_that_chance_alone_brings_is_left_out() -> None:
    """Of few rows the one half always fits some factor; the other half does not confirm it."""
    scaled = [float(judge(*planted(200, [0.0], seed), seed=seed).scale) != 1 for seed in range(40)]
    assert sum(scaled) <= 4


def test_an_ensemble_is_scaled_as_a_whole_and_each_task_by_itself() -> None:
    labels, logits = planted(8_000, [1.0, 1.0])
    both = judge(np.stack([labels, labels], axis=1), np.stack([logits, 3 * logits], axis=2), seed=0, tasks=("a", "b"))
    assert both.is_ensemble
    assert both.scale.shape == (2,)
    assert both.scale[1] == pytest.approx(judge(labels, 3 * logits, seed=0).scale, rel=0.05)
    assert both.scale[1] < 0.6


def test_of_many_candidates_the_best_together_are_taken() -> None:
    labels, logits = planted(6_000, [1.0, 1.0, 1.0, 3.0, 3.0])
    verdict = judge(labels, logits, seed=0, most=2)
    assert len(verdict.chosen) == 2
    assert set(verdict.chosen) < {0, 1, 2}
    fitted, _ = halves(labels, 0)
    again = fit_weights(labels[fitted], logits[verdict.chosen][:, fitted])
    assert verdict.weights[verdict.chosen] == pytest.approx(again)
    assert len(judge(labels, logits, seed=0).chosen) > 2
