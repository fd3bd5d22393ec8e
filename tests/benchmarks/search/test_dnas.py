"""Fronts are compared by equally many candidates, and by as much time."""

import math
from typing import Any

import pytest

from benchmarks.search.dnas import _compare


def run(points: list[tuple[float, float, float]], method_seconds: float = 0.0) -> dict[str, Any]:
    """Candidates of (NE, bytes, seconds)."""
    candidates = [{"ne": ne, "parameter_bytes": size, "seconds": seconds} for ne, size, seconds in points]
    return {"method_seconds": method_seconds, "candidates": candidates}


def test_areas_are_compared_below_the_worst_of_both() -> None:
    dnas = run([(0.5, math.e**2, 1.0)], method_seconds=2.5)
    random = run([(0.7, math.e**3, 1.0), (0.4, math.e**2, 1.0), (0.3, math.e, 1.0), (0.1, 1.0, 1.0)])
    found = _compare({"dnas": [dnas], "random": [random]}, "parameter_bytes", 2)
    assert (found["reference_ne"], found["reference_parameter_bytes"]) == pytest.approx((0.7, math.e**3))
    assert found["ratios"] == pytest.approx([0.2 / 0.3])
    assert found["ratios_below_base_rate"] == pytest.approx([0.5 / 0.6])
    assert found["random_candidates_in_equal_time"] == [3], "of four that were trained"
    assert found["ratios_equal_time"] == pytest.approx([0.2 / 0.8])
    assert found["processor_seconds_dnas"] == [3.5]
