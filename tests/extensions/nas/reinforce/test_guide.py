"""What the past teaches: predictions on planted tables, how far they are believed, and where the policy starts."""

import numpy as np
import pytest
import torch

from shunter.extensions.nas.reinforce.experience import Actions, History, levels_of, predicted_reward
from shunter.extensions.nas.reinforce.guide import INITIAL_ENTROPY, Guide, agrees, guide_for, rank_correlation
from shunter.extensions.nas.reinforce.learner import Tried, standardised
from shunter.extensions.nas.reinforce.policy import entropy, log_probabilities, most_entropy
from shunter.search.protocol import Outcome
from tests.extensions.nas.reinforce import planted
from tests.extensions.nas.reinforce.planted import ACTIONS, POINTS, family, history_of, outcome_at, tables

EVERY = np.array(POINTS)
TABLE, PAST = tables(5)


def guide_of(past: list[History], features: dict[str, float] | None = None) -> Guide:
    guide = guide_for(ACTIONS, past, features or {}, None, seed=0)
    assert guide is not None
    return guide


@pytest.fixture(scope="module")
def guide() -> Guide:
    found = guide_of([history_of(PAST, 0, 0.5)])
    assert found.fit()
    return found


def test_the_surrogate_foretells_points_that_nobody_tried(guide):
    tried = {tuple(action) for action in history_of(PAST, 0, 0.5).actions.tolist()}
    unseen = np.array([point for point in POINTS if point not in tried])

    assert rank_correlation(guide.predict(unseen), -PAST[tuple(unseen.T)]) > 0.8


def test_shuffled_labels_have_no_skill():
    assert not guide_of(list(planted.shuffled(5))).fit()


def test_too_few_points_make_no_guide():
    assert guide_for(ACTIONS, [history_of(PAST, 0, 0.03)], {}, None, seed=0) is None


def test_meta_features_tell_data_sets_apart_that_were_never_searched():
    past, table, features = family(2)
    guide = guide_of(past, features)

    assert guide.fit()
    assert rank_correlation(guide.predict(EVERY), -table.ravel()) > 0.6


def test_the_policy_starts_with_good_points_and_stays_open(guide):
    policy, state = guide.policy()

    with torch.no_grad():
        choices, value = policy(state)
    probabilities = log_probabilities(choices, torch.from_numpy(EVERY)).sum(1).exp().numpy()
    assert probabilities @ -PAST.ravel() > -PAST.mean() + PAST.std()
    assert entropy(choices).item() >= INITIAL_ENTROPY * most_entropy(ACTIONS.mask) - 1e-3
    assert value.item() == pytest.approx(probabilities @ guide.predict(EVERY), abs=0.3)


def test_points_unlike_all_that_was_tried_are_not_trusted():
    """The past tried the values 0 and 1 of the first factor alone."""
    points = [point for point in POINTS if point[0] < 2]
    past = History.of(ACTIONS, {}, [(ACTIONS.decode(p), outcome_at(PAST, ACTIONS.decode(p))) for p in points])
    guide = guide_of([past])
    guide.fit()

    trusted = guide.trusts(EVERY).reshape(PAST.shape)

    assert trusted[:2].mean() > 0.8
    assert trusted[2:].mean() < 0.2


def test_agreement_is_judged_by_rank_from_eight_points_on():
    rising = np.arange(8.0)

    assert agrees(rising, rising**3)
    assert not agrees(rising, -rising)
    assert agrees(rising[:7], -rising[:7])


def test_a_reward_is_brought_to_the_level_of_what_was_foretold():
    tried = [Tried(action=(index,), reward=-0.8 + 0.01 * index, predicted=1.0 + index) for index in range(5)]

    found = standardised(tried)

    assert np.median(found) == pytest.approx(3.0)  # the median of what was foretold
    assert (np.diff(found) >= 0).all()


def test_history_leaves_out_what_failed_and_what_lies_outside():
    actions = Actions({"kind": ("dot", "cross")})
    known = Outcome(state="complete", validation_ne=0.8, costs={"parameter_bytes": np.e**3})
    trials = [({"kind": "dot"}, known), ({"kind": "unheard of"}, known), ({"kind": "cross"}, Outcome(state="failed"))]

    history = History.of(actions, {}, trials)

    assert history.actions.tolist() == [[0]]
    assert history.figures[0, 0] == 0.8
    assert np.isnan(history.figures[0, 1:3]).all()
    assert history.figures[0, 3] == pytest.approx(3)


def test_the_predicted_reward_ranks_like_the_real_one():
    """`-(NE + weight * log cost)` in spreads of NE: hand-computed for two points."""
    figures = np.array([[0.80, np.nan, np.nan, 10.0], [0.82, np.nan, np.nan, 12.0], [0.84, np.nan, np.nan, 14.0]])
    levels = levels_of(figures)

    found = predicted_reward((figures - levels.centre) / levels.spread, levels, "parameter_bytes", weight=0.01)

    assert (found[0] - found[1]) * levels.spread[0] == pytest.approx(0.02 + 0.01 * 2.0)
