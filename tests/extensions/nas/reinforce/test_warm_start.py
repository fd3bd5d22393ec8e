"""The controller on planted tables of 256 points whose best one is known, over 20 seeds: cold, warm, and misled."""

import functools

import numpy as np
import pytest
import torch
from scipy.stats import mannwhitneyu

from shunter.extensions.nas.reinforce.controller import Controller
from shunter.search.protocol import BudgetLeft
from tests.extensions.nas.reinforce import planted
from tests.extensions.nas.reinforce.planted import ACTIONS, history_of, outcome_at, over_seeds, tables

SEEDS = range(20)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def cold() -> np.ndarray:
    return over_seeds(planted.cold, SEEDS)


def test_a_cold_controller_learns_faster_than_random_search():
    assert mannwhitneyu(cold(), planted.random_search(SEEDS), alternative="less").pvalue < 0.05


def test_a_warm_start_takes_at_most_half_of_the_evaluations():
    warm = over_seeds(planted.warm(), SEEDS)

    assert np.mean(warm) <= 0.5 * np.mean(cold())
    assert mannwhitneyu(warm, cold(), alternative="less").pvalue < 0.05


def test_a_past_of_shuffled_labels_costs_at_most_a_fifth_more():
    some = range(8)  # all are in tests/extensions/nas/reinforce/planted.py
    assert np.mean(over_seeds(planted.shuffled, some)) <= 1.2 * np.mean(cold()[some])


@pytest.mark.parametrize("seed", range(4))
def test_a_past_that_says_the_opposite_is_left_after_two_batches(seed):
    table, past = tables(seed)
    controller = Controller(ACTIONS, seed=seed, past=[history_of(1.4 - past, seed)])

    for _ in range(16):
        point = controller.ask(BudgetLeft())
        assert point is not None
        controller.tell(point, outcome_at(table, point))

    assert [step.is_guided for step in controller.curve][-1] is False


def test_a_past_that_fits_is_followed():
    table, past = tables(0)
    controller = Controller(ACTIONS, seed=0, past=[history_of(past, 0)])

    for _ in range(16):
        point = controller.ask(BudgetLeft())
        assert point is not None
        controller.tell(point, outcome_at(table, point))

    assert [step.is_guided for step in controller.curve] == [True, True]
    assert controller.curve[0].guide_weight > controller.curve[1].guide_weight > 0
