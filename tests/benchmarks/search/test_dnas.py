"""Fronts are compared by equally many candidates, and by as much time; what a super-net says, by rank."""

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.search.dnas import compare
from benchmarks.search.one_shot import correlations


def run(points: list[tuple[float, float, float]], method_seconds: float = 0.0) -> dict[str, Any]:
    """Candidates of (NE, bytes, seconds)."""
    candidates = [{"ne": ne, "parameter_bytes": size, "seconds": seconds} for ne, size, seconds in points]
    return {"method_seconds": method_seconds, "candidates": candidates}


def test_areas_are_compared_below_the_worst_of_all() -> None:
    dnas = run([(0.5, math.e**2, 1.0)], method_seconds=2.5)
    random = run([(0.7, math.e**3, 1.0), (0.4, math.e**2, 1.0), (0.3, math.e, 1.0), (0.1, 1.0, 1.0)])
    motpe, nsga2 = run([(0.6, math.e, 1.0)]), run([(0.8, math.e**3, 1.0), (0.4, math.e, 1.0)])
    longer = run([(0.6, math.e**2, 4.0), (0.1, 1.0, 1.0)])
    runs = {"dnas": [dnas], "random": [random], "motpe": [motpe], "nsga2": [nsga2], "motpe_longer": [longer]}
    found = compare(runs, "parameter_bytes", 2)
    assert (found["reference_ne"], found["reference_parameter_bytes"]) == pytest.approx((0.8, math.e**3))
    assert found["ratios"]["dnas_vs_random"] == pytest.approx([0.3 / 0.4])
    assert found["ratios"]["dnas_vs_motpe"] == pytest.approx([0.3 / 0.4])
    assert found["ratios"]["nsga2_vs_random"] == pytest.approx([0.8 / 0.4])
    assert found["ratios_below_base_rate"]["dnas_vs_random"] == pytest.approx([0.5 / 0.6])
    assert found["candidates_in_equal_time"] == {"random": [3], "motpe": [1]}, "of four and two that were trained"
    assert found["ratios_equal_time"]["dnas_vs_random"] == pytest.approx([0.3 / 1.0])
    assert found["ratios_equal_time"]["dnas_vs_motpe"] == pytest.approx([0.3 / 0.2])
    assert found["beyond_default"] == {
        "dnas": [0.0],
        "random": pytest.approx([0.3]),
        "motpe": [0.0],
        "nsga2": pytest.approx([0.8]),
    }
    assert found["best_ne"]["random"] == [0.4]
    assert found["processor_seconds"]["dnas"] == [3.5]


def test_a_supernet_that_orders_as_trainings_do_has_correlation_one() -> None:
    own = np.linspace(0.5, 0.9, 20)
    random = np.random.default_rng(0)
    in_order = correlations([list(zip(own**3, own, strict=True))] * 2)
    assert {round(value, 9) for value in in_order.values()} == {1.0}
    noisy = correlations([list(zip(random.permutation(own), own, strict=True)) for _ in range(3)])
    assert noisy["spearman_low"] < noisy["spearman"] < noisy["spearman_high"]
    assert noisy["spearman_low"] < 0.0 < noisy["spearman_high"], "nothing is known of them"
