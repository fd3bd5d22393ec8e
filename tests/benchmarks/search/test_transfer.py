"""How the benchmark of meta-learning counts: whose past a log may be, and when it is kept within half of the trials."""

from pathlib import Path

import numpy as np

from benchmarks.search import transfer
from benchmarks.search.data import ORIGINS
from benchmarks.search.transfer import LOGS, Plan, Search, Study, noise_of, past_of
from shunter.search.protocol import Outcome


def searched(*losses: float) -> Search:
    return Search(
        tuple(({"place": place}, Outcome(state="complete", validation_ne=loss)) for place, loss in enumerate(losses))
    )


def study(**by_method: dict[str, list[Search]]) -> Study:
    found = {
        (method, name, seed): one
        for method, logs in by_method.items()
        for name, searches in logs.items()
        for seed, one in enumerate(searches)
    }
    return Study(Plan(folder=Path(), seeds=(0, 1, 2), trials=4), found)


def test_the_goal_is_what_the_median_cold_search_reaches_and_later_than_half_is_all_one() -> None:
    cold = [searched(0.9, 0.8, 0.8, last) for last in (0.7, 0.6, 0.5)]
    warm = [searched(0.6), searched(0.9, 0.55), searched(0.9, 0.8, 0.5)]
    found = study(cold={"frappe": cold}, product={"frappe": warm})
    assert found.goal("frappe") == 0.6
    assert found.trials_to_goal("product", "frappe") == [1, 2, 3]
    assert found.trials_to_goal("cold", "frappe") == [3, 3, 3]  # in four trials: later than half, as one that never did
    assert (found.within_half("product", ["frappe"]), found.within_half("cold", ["frappe"])) == (1, 0)


def test_no_log_has_a_past_that_may_hold_its_rows() -> None:
    cold = {name: [searched(0.9, 0.8, 0.7, 0.6)] * 3 for name in LOGS}
    found = study(cold=cold)
    for name in LOGS:
        names = {one.name for one in past_of(name, found, lambda _: {"rows": 1.0})}
        assert names == {other for other in LOGS if ORIGINS.get(other, other) != ORIGINS.get(name, name)}
    assert set(ORIGINS) <= set(LOGS)
    assert set(transfer.SEEN) < set(LOGS)


def test_noise_is_that_of_the_best_setting_that_all_seeds_trained() -> None:
    cold = [searched(0.9, 0.5 + moved, 0.1 * moved) for moved in (0.0, 0.1, 0.2)]
    assert noise_of(study(cold={"frappe": cold[:1] * 3}), "frappe") == 0.0
    noise = noise_of(study(cold={"frappe": cold}), "frappe")
    assert noise is not None
    assert np.isclose(noise, 0.01)
