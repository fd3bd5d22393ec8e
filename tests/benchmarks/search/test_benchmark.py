"""The comparison of the ways of searching: real searches, what is published of them, and the picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.search import cache as search_cache
from benchmarks.search.benchmark import headline, seeds
from benchmarks.search.figure import draw
from benchmarks.search.hpo import regrets, trial_ratios
from benchmarks.search.methods import Plan, measure

TRIALS = 3


@pytest.mark.slow
@pytest.mark.long
def test_real_searches_give_curves_and_a_warm_one_finds_its_past(
    tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (shared_data / "frappe_x1_train_valid.npz").exists():
        pytest.skip("Frappe is not beside the project")
    monkeypatch.setattr(search_cache, "RESULTS", tmp_path / "results")
    rows = {"train": 2_100, "validation": 500, "test": 0}
    plan = Plan(
        data=("frappe",), methods=("random", "transfer"), seeds=(0,), trials=TRIALS, rows=rows, folder=tmp_path / "runs"
    )
    figures = measure(plan)

    for method in plan.methods:
        (run,) = figures["details"]["frappe"][method]["runs"]
        assert len(run["best_ne"]) == len(run["processor_seconds"]) == TRIALS
        assert (np.diff(run["best_ne"]) <= 0).all()
        assert (np.diff(run["wall_seconds"]) > 0).all()
        assert figures[f"best_ne_{method}"] == pytest.approx(run["best_ne"][-1], abs=1e-5)
    began = {method: figures["details"]["frappe"][method]["runs"][0]["past"] for method in plan.methods}
    assert began["random"] == "No earlier search to begin from."
    assert began["transfer"].startswith(f"Begins from what did best on ml-1m-ctr ({TRIALS} trials")

    nothing = plan.folder
    assert nothing is not None
    known = measure(Plan(**{**vars(plan), "folder": tmp_path / "not needed"}))
    assert known["details"] == figures["details"]
    assert not (tmp_path / "not needed").exists()


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


def test_picture_shows_means_by_trial_and_by_time_and_the_tables() -> None:
    figure = draw(PARTS)
    assert figure is not None
    by_trial, by_time, regret, empty = figure.axes
    lines = {str(line.get_label()): line for line in by_trial.get_lines()}
    assert np.asarray(lines["random"].get_ydata()).tolist() == pytest.approx([0.85, 0.65])
    stairs = {str(line.get_label()): line for line in by_time.get_lines()}["random"]
    times, values = np.asarray(stairs.get_xdata()), np.asarray(stairs.get_ydata())
    assert (times[0], times[-1]) == (2.0, 5.0)
    assert values[0] == pytest.approx((0.9 + 0.8) / 2)
    assert values[(times > 3.0) & (times < 5.0)] == pytest.approx((0.7 + 0.8) / 2)
    assert values[-1] == pytest.approx((0.7 + 0.6) / 2)
    assert np.asarray(regret.get_lines()[0].get_ydata()).tolist() == pytest.approx([50.0, 10.0])
    assert not empty.axison
    assert draw({"rl": {}}) is None


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
