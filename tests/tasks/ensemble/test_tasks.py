"""Ensembles of several tasks: weights for each, the main one decides; rows count by their weights."""

import numpy as np
import pytest

from shunter.engine.ensemble.ensemble_selection import select_ensemble
from shunter.engine.ensemble.selection import combine, fit_weights
from shunter.engine.metrics import compute_metrics

TASKS = ("click", "conversion")


def noisy(seed: int = 0, rows: int = 4_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two members, of which the first knows the main task better and the second the other; labels, logits, weights."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=(rows, 2))
    labels = (random.random((rows, 2)) < 1 / (1 + np.exp(-2 * truth))).astype(np.float32)
    noise = np.array([[0.5, 3.0], [0.8, 0.3]])  # of each member, for each task
    logits = 2 * truth + noise[:, None, :] * random.normal(size=(2, rows, 2))
    weights = np.ones((rows, 2), dtype=np.float32)
    weights[random.random(rows) < 0.5, 1] = 0
    return labels, logits.astype(np.float32), weights


def test_each_task_has_the_weights_that_fit_it_alone() -> None:
    labels, logits, weights = noisy()
    selection = select_ensemble(labels, logits, seed=1, row_weights=weights, tasks=TASKS)
    assert selection.is_ensemble
    assert selection.weights.shape == (2, 2)
    assert selection.weights.sum(0) == pytest.approx([1, 1])
    assert selection.weights[0, 0] > 0.3
    assert selection.weights[1, 1] > 0.9
    assert selection.ensemble is not None
    assert selection.single is not None
    assert selection.ensemble.others["conversion"].rows < selection.ensemble.rows
    assert selection.ensemble.others["conversion"].ne < selection.single.others["conversion"].ne
    main = select_ensemble(labels[:, 0], logits[:, :, 0], seed=1)
    assert selection.weights[:, 0] == pytest.approx(main.weights, abs=1e-6)
    assert selection.ensemble.ne == pytest.approx(main.ensemble.ne, abs=1e-9)  # pyright: ignore[reportOptionalMemberAccess]


def test_the_main_task_decides_against_an_ensemble_that_helps_the_other_only() -> None:
    labels, logits, weights = noisy()
    logits[0, :, 0] = 8 * (labels[:, 0] - 0.5)  # the first member cannot be improved on
    selection = select_ensemble(labels, logits, seed=1, row_weights=weights, tasks=TASKS)
    assert selection.best_single == 0
    assert not selection.is_ensemble
    np.testing.assert_array_equal(selection.weights, [[1, 1], [0, 0]])


def test_a_task_without_any_label_takes_the_weights_of_the_main_one() -> None:
    labels, logits, weights = noisy()
    weights[:, 1] = 0
    selection = select_ensemble(labels, logits, seed=1, row_weights=weights, tasks=TASKS)
    np.testing.assert_array_equal(selection.weights[:, 0], selection.weights[:, 1])


def test_whole_weights_fit_like_copies_of_the_rows() -> None:
    labels, logits, _ = noisy(rows=600)
    counts = np.random.default_rng(2).integers(0, 4, 600)
    weighted = fit_weights(labels[:, 0], logits[:, :, 0], counts)
    copies = fit_weights(labels[:, 0].repeat(counts), logits[:, :, 0].repeat(counts, axis=1))
    assert weighted == pytest.approx(copies, abs=1e-4)


def test_combining_is_the_weighted_mean_task_by_task() -> None:
    labels, logits, _ = noisy(rows=50)
    weights = np.array([[0.25, 1.0], [0.75, 0.0]])
    combined = combine(weights, logits)
    np.testing.assert_allclose(combined[:, 0], 0.25 * logits[0, :, 0] + 0.75 * logits[1, :, 0], rtol=1e-6)
    np.testing.assert_allclose(combined[:, 1], logits[0, :, 1], rtol=1e-6)
    assert compute_metrics(labels[:, 0], combined[:, 0]).auc > 0.5
