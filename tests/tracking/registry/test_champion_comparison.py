"""Whether a challenger is promoted: seldom when it is equal, surely when it is better, never within the margin."""

import numpy as np
import pytest
from scipy.special import expit

from shunter.engine.metrics import row_losses
from shunter.errors import DataError, TrainingError
from shunter.statistics import MOST_BLOCKS, resampled_block_means
from shunter.tracking.registry.champion_comparison import compare_losses


def losses(seed: int, rows: int, better: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Two models that see the truth through noise of their own; `better`, the second one's is smaller."""
    random = np.random.default_rng(seed)
    truth = random.normal(-1, 1, rows)
    labels = (random.random(rows) < expit(truth)).astype(float)
    first, second = (truth + random.normal(0, scale, rows) for scale in (0.5, 0.5 - better))
    return row_losses(labels, first), row_losses(labels, second)


def test_equal_models_are_promoted_as_seldom_as_was_asked_for() -> None:
    """With 95 % asked for, 5 % of equal challengers pass; of 300 more than 26 (8.7 %) would happen once in 400."""
    promoted = sum(
        compare_losses(*losses(seed, 400), margin=0.0, confidence=0.95, seed=seed).is_better for seed in range(300)
    )
    assert 3 <= promoted <= 26


def test_margin_keeps_equal_models_out_and_lets_better_ones_in() -> None:
    equal = [compare_losses(*losses(seed, 800), margin=0.02, confidence=0.95, seed=seed) for seed in range(20)]
    better = [
        compare_losses(*losses(seed, 3_000, better=0.5), margin=0.001, confidence=0.95, seed=seed) for seed in range(8)
    ]
    assert not any(one.is_better for one in equal)
    assert all(one.is_better for one in better)


def test_the_very_same_model_is_never_promoted() -> None:
    champion, _ = losses(0, 1_000)
    judgement = compare_losses(champion, champion.copy(), margin=0.0, confidence=0.95, seed=0)
    assert not judgement.is_better
    assert judgement.saving == judgement.saving_low == 0.0


def test_resampled_savings_spread_as_the_standard_error_says_and_repeat_by_seed() -> None:
    champion, challenger = losses(1, MOST_BLOCKS * 5 + 7)
    savings = resampled_block_means(champion - challenger, seed=3)
    difference = champion - challenger
    assert savings.mean() == pytest.approx(difference.mean(), abs=0.2 * savings.std())
    assert savings.std() == pytest.approx(difference.std() / len(difference) ** 0.5, rel=0.1)
    np.testing.assert_array_equal(savings, resampled_block_means(champion - challenger, seed=3))


def test_neighbours_that_depend_on_each_other_widen_the_interval() -> None:
    """Each saving stands five times in a row, as if a user came five times: the interval must be sqrt(5) as wide."""
    champion, challenger = losses(2, MOST_BLOCKS)
    alone = resampled_block_means(champion - challenger, seed=0).std()
    repeated = resampled_block_means(np.repeat(champion - challenger, 5), seed=0).std()
    assert repeated == pytest.approx(alone, rel=0.1)


def test_predictions_that_are_no_numbers_and_no_rows_are_said() -> None:
    good, bad = np.ones(3), np.array([1.0, np.nan, 1.0])
    with pytest.raises(TrainingError, match="challenger predicts"):
        compare_losses(good, bad, margin=0, confidence=0.95, seed=0)
    with pytest.raises(DataError, match="champion predicts"):
        compare_losses(bad, good, margin=0, confidence=0.95, seed=0)
    with pytest.raises(DataError, match="no row"):
        compare_losses(np.empty(0), np.empty(0), margin=0, confidence=0.95, seed=0)


def test_log_losses_are_those_of_the_definition_without_overflow() -> None:
    labels, logits = np.array([0, 1, 1, 0]), np.array([0.3, -2.0, 800.0, 800.0])
    expected = [-np.log(1 - expit(0.3)), -np.log(expit(-2.0)), 0.0, 800.0]
    np.testing.assert_allclose(row_losses(labels, logits), expected, atol=1e-12)


def test_a_champion_that_predicts_the_base_rate_has_an_entropy_of_one() -> None:
    labels = (np.arange(1_000) < 300).astype(float)
    constant = row_losses(labels, np.full(1_000, np.log(0.3 / 0.7)))
    judgement = compare_losses(constant, 0.9 * constant, margin=0.0, confidence=0.95, seed=0)
    assert judgement.champion_ne(0.3) == pytest.approx(1.0)
    assert judgement.champion_ne(0.5) < 1
    assert judgement.champion_ne(0.0) == float("inf")
