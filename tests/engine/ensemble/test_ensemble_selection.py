"""Whether an ensemble earns its keep, and how it is combined: what comes out for planted members."""

from itertools import permutations

import numpy as np
import pytest

from shunter.engine.ensemble.calibration import log_losses
from shunter.engine.ensemble.combinations import PRESENT
from shunter.engine.ensemble.ensemble_selection import PULLS, select_ensemble
from shunter.engine.ensemble.selection import fit_weights, halves
from shunter.engine.metrics import compute_metrics
from tests.engine.ensemble.planted import planted


def test_ensemble_of_independent_members_is_kept_and_better_on_unseen_rows() -> None:
    labels, logits = planted(6_000, [1.5, 1.5, 1.5])
    selection = select_ensemble(labels[:4_000], logits[:, :4_000], seed=1)
    assert selection.is_ensemble
    assert selection.ensemble is not None
    assert selection.single is not None
    assert selection.ensemble.rows == selection.single.rows == 4_000
    unseen_labels, unseen = labels[4_000:], logits[:, 4_000:]
    assert (
        compute_metrics(unseen_labels, selection.weights @ unseen).logloss
        < compute_metrics(unseen_labels, unseen[selection.best_single]).logloss
    )


def test_single_is_kept_when_the_others_are_noise() -> None:
    """But for chance: on some rows a little noise makes a member less sure of what it errs in."""
    kept = []
    for seed in range(8):
        labels, good = planted(2_000, [0.1], seed=seed)
        noise = np.random.default_rng(seed).normal(0, 3, (2, 2_000))
        selection = select_ensemble(labels, np.vstack([noise, good]), seed=0)
        assert selection.best_single == 2
        kept.append(selection.weights.tolist() == [0, 0, 1])
    assert sum(kept) >= 7


def test_copies_of_one_member_make_no_ensemble_worth_keeping() -> None:
    """A mixture of copies is the copy: not better, so the single is the result."""
    labels, logits = planted(500, [1.0])
    selection = select_ensemble(labels, np.vstack([logits, logits]), seed=0)
    assert not selection.is_ensemble


def test_judged_rows_did_not_fit_the_weights() -> None:
    """Log odds of the judged half are turned over: the weights must not notice."""
    labels, logits = planted(1_000, [0.8, 1.2])
    fitted, evaluated = halves(labels, seed=3)
    found = []
    for pull in PULLS:
        weights = fit_weights(labels[fitted], logits[:, fitted], pull=pull)
        corrupted = logits.copy()
        corrupted[:, evaluated] *= -1
        assert fit_weights(labels[fitted], corrupted[:, fitted], pull=pull) == pytest.approx(weights)
        turned = fit_weights(labels[evaluated], logits[:, evaluated], pull=pull)
        unseen = np.where(np.isin(np.arange(1_000), evaluated), weights @ logits, turned @ logits)
        found.append((weights, compute_metrics(labels, unseen)))
    weights, quality = min(found, key=lambda one: one[1].logloss)
    selection = select_ensemble(labels, logits, seed=3)
    assert selection.weights == pytest.approx(weights)
    assert selection.ensemble == quality


def test_the_single_is_judged_on_rows_that_did_not_pick_it() -> None:
    """Of members that are equally good the best on some rows was lucky there: it is not credited with its luck."""
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 1, 400)
    labels = (rng.random(400) < 1 / (1 + np.exp(-truth))).astype(np.int8)
    logits = truth + rng.normal(0, 1, (12, 400))
    selection = select_ensemble(labels, logits, seed=0)
    losses = np.logaddexp(0, logits) - labels * logits
    by_hand = 0.0
    for half, other in permutations(halves(labels, 0)):
        by_hand += losses[losses[:, other].sum(axis=1).argmin(), half].sum() / 400
    assert selection.single is not None
    assert selection.single.logloss == pytest.approx(by_hand)
    assert selection.single.logloss > losses.mean(axis=1).min()


def test_weights_that_few_rows_cannot_tell_apart_stay_near_equal_ones() -> None:
    away = {False: 0.0, True: 0.0}
    for seed in range(20):
        labels, logits = planted(200, [1.0, 1.0, 1.0], seed=seed)
        plain = fit_weights(labels[(fitted := halves(labels, 0)[0])], logits[:, fitted])
        selection = select_ensemble(labels, logits, seed=0)
        for is_compared, weights in ((False, plain), (True, selection.weights)):
            away[is_compared] += float(np.square(weights - 1 / 3).sum())
        assert selection.is_ensemble
    assert away[True] < away[False]


def test_the_figure_that_selects_picks_the_single_and_judges_the_ensemble() -> None:
    labels, (sharp, dull) = planted(4_000, [0.2, 0.6])
    logits = np.stack([5 * sharp, dull])  # the first ranks best, and is far too sure of itself
    assert select_ensemble(labels, logits, seed=0).best_single == 1
    selection = select_ensemble(labels, logits, seed=0, select_by="auc")
    assert selection.best_single == 0
    assert selection.ensemble is not None
    assert selection.single is not None
    assert selection.is_ensemble == (selection.ensemble.auc > selection.single.auc)


def test_what_is_too_sure_of_itself_is_scaled_where_it_was_not_fitted() -> None:
    """The planted log odds are right, so that four times of them want to be divided by four again."""
    labels, logits = planted(20_000, [0.0])
    selection = select_ensemble(labels, 4 * logits, seed=0)
    assert selection.scale == pytest.approx(0.25, rel=0.1)
    plain = select_ensemble(labels, logits, seed=0)
    assert plain.scale == 1


def test_a_scale_that_chance_alone_brings_is_left_out() -> None:
    """Of few rows the one half always fits some factor; the other half does not confirm it."""
    scaled = [float(select_ensemble(*planted(200, [0.0], seed), seed=seed).scale) != 1 for seed in range(40)]
    assert sum(scaled) <= 4


def test_an_ensemble_is_scaled_as_a_whole_and_each_task_by_itself() -> None:
    labels, logits = planted(8_000, [1.0, 1.0])
    both = select_ensemble(
        np.stack([labels, labels], axis=1), np.stack([logits, 3 * logits], axis=2), seed=0, tasks=("a", "b")
    )
    assert both.is_ensemble
    assert both.scale.shape == (2,)
    assert both.scale[1] == pytest.approx(select_ensemble(labels, 3 * logits, seed=0).scale, rel=0.05)
    assert both.scale[1] < 0.6


def test_of_many_candidates_the_best_together_are_taken() -> None:
    labels, logits = planted(6_000, [1.0, 1.0, 1.0, 3.0, 3.0])
    selection = select_ensemble(labels, logits, seed=0, most=2)
    assert len(selection.chosen) == 2
    assert set(selection.chosen) < {0, 1, 2}
    fitted, _ = halves(labels, 0)
    again = [fit_weights(labels[fitted], logits[selection.chosen][:, fitted], pull=pull) for pull in PULLS]
    assert any(selection.weights[selection.chosen] == pytest.approx(weights) for weights in again)
    assert len(select_ensemble(labels, logits, seed=0).chosen) > 2


def test_members_that_see_each_a_part_are_stacked() -> None:
    """Of independent parts of the truth the sum is right, and the mean too timid, so that the weights sum to two."""
    random = np.random.default_rng(0)
    parts = random.normal(0, 1.5, (2, 12_000))
    labels = (random.random(12_000) < 1 / (1 + np.exp(-parts.sum(0) + 1))).astype(np.float32)
    selection = select_ensemble(labels, parts, seed=0)
    assert selection.combination is not None
    assert selection.combination.slope == pytest.approx(2, rel=0.15)
    assert selection.ne[selection.combination.label] < selection.ne[PRESENT]


def test_a_curve_that_no_factor_puts_right_is_calibrated_by_steps() -> None:
    labels, (truth,) = planted(20_000, [0.0])
    bent = np.sign(truth) * truth**2
    selection = select_ensemble(labels, bent[np.newaxis], seed=0)
    assert selection.combination is not None
    assert selection.combination.label == "single-logits-isotonic"
    plain = select_ensemble(labels, truth[np.newaxis], seed=0)
    assert plain.combination is None
    unseen, (again,) = planted(5_000, [0.0], seed=1)
    loss = log_losses(unseen, selection.combine((np.sign(again) * again**2)[np.newaxis])).mean()
    assert loss == pytest.approx(log_losses(unseen, again).mean(), rel=0.01)


@pytest.mark.parametrize("seed", range(6))
def test_what_takes_the_place_of_the_mean_is_better_on_the_rows_that_judge_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels, logits = planted(3_000, [0.5, 1.0, 2.0], seed=seed)
    logits = logits * random.uniform(0.3, 3, (3, 1)) + random.uniform(-1, 1, (3, 1))
    selection = select_ensemble(labels, logits, seed=0)
    first, second = halves(labels, 0)
    fits = [fit_weights(labels[first], logits[:, first], pull=pull) for pull in PULLS]
    mean = max(compute_metrics(labels[second], weights @ logits[:, second]).logloss for weights in fits)
    alone = compute_metrics(labels[second], logits[selection.best_single, second]).logloss
    assert log_losses(labels[second], selection.combine(logits[:, second])).mean() <= min(mean, alone) + 1e-12


def test_rows_without_weight_change_nothing() -> None:
    labels, logits = planted(4_000, [0.5, 1.0])
    logits = 3 * logits + 1
    weights = np.ones(4_000)
    weights[::3] = 0
    one = select_ensemble(labels, logits, seed=0, row_weights=weights)
    labels[::3] = 1 - labels[::3]
    selections = one.ne, select_ensemble(labels, logits, seed=0, row_weights=weights).ne
    assert selections[0].keys() == selections[1].keys()


def test_too_few_rows_keep_the_mean() -> None:
    labels, logits = planted(60, [0.5, 0.5])
    assert select_ensemble(labels, logits, seed=0).ne == {}


def test_where_one_member_may_be_kept_none_are_compared() -> None:
    labels, logits = planted(3_000, [1.0, 0.3, 1.0])
    selection = select_ensemble(labels, logits, seed=0, most=1)
    assert selection.chosen == [selection.best_single]
    assert selection.ensemble is None
    assert selection.single is None
