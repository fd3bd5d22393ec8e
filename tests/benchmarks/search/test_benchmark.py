"""The comparison of the ways of searching: real searches, what is published of them, and the picture."""

from typing import Any

import numpy as np

from benchmarks.search.benchmark import headline, seeds
from benchmarks.search.hpo import regrets, trial_ratios


def runs_of(best: list[list[float]], seconds: list[list[float]]) -> dict[str, Any]:
    pairs = zip(best, seconds, strict=True)
    return {"runs": [{"best_ne": curve, "processor_seconds": times} for curve, times in pairs]}


PARTS: dict[str, Any] = {
    "methods": {
        "best_ne_tpe": 0.5,
        "trials": 24,
        "seeds": [0, 1],
        "details": {
            "frappe": {
                "random": runs_of([[0.9, 0.7], [0.8, 0.6]], [[1.0, 3.0], [2.0, 5.0]]),
                "tpe": runs_of([[0.9, 0.5], [0.8, 0.5]], [[1.0, 2.0], [1.0, 2.0]]),
            }
        },
    },
    "hpo": {
        "hpo_regret_tpe": 0.01,
        "seeds": [0, 1, 2],
        "details": {"HPOLib": {"tpe_warm": {"regret_by_trial": [0.5, 0.1]}}},
    },
    "rl": {"rl_vs_cold_evaluations": 0.4, "seeds": 5, "searches": {}},
}


def test_headline_has_the_figures_of_all_parts_and_no_sizes() -> None:
    assert headline(PARTS) == {"best_ne_tpe": 0.5, "hpo_regret_tpe": 0.01, "rl_vs_cold_evaluations": 0.4}
    assert seeds(PARTS) == [0, 1, 2, 3, 4]


def test_regret_follows_what_was_observed_and_judges_by_the_mean() -> None:
    trials = [
        {"error": 0.5, "rank": 0.3},
        {"error": 0.6, "rank": 0.0},  # unlucky: better by its mean, yet not chosen
        {"error": 0.4, "rank": 0.4},  # lucky
        {"error": 0.4, "rank": 0.1},
        {"error": 0.1, "rank": 0.05},
    ]
    assert regrets(trials).tolist() == [0.3, 0.3, 0.4, 0.4, 0.05]


def test_trials_that_a_past_saves_are_counted_to_the_median_result_of_cold_searches() -> None:
    cold = np.array([[[0.5, 0.4, 0.4, 0.3], [0.5, 0.2, 0.2, 0.1], [0.5, 0.5, 0.5, 0.2]]])  # one table, three seeds
    warm = np.array([[[0.2, 0.2, 0.2, 0.2], [0.3, 0.2, 0.1, 0.1], [0.3, 0.3, 0.3, 0.3]]])
    ratios = trial_ratios({"tpe": cold, "warm": warm})  # the goal is 0.2
    assert ratios["tpe"].tolist() == [4 / 4]  # after 5 (never), 2 and 4 trials
    assert ratios["warm"].tolist() == [2 / 4]  # after 1, 2 and 5 (never)
