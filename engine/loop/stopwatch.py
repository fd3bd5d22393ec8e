"""Alternating time measurement of several functions."""

import statistics
import time
from collections.abc import Callable, Sequence

WARM_UP, ROUNDS = 2, 11

Stopwatch = Callable[[Sequence[Callable[[], object]]], list[float]]


def alternating_seconds(works: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median seconds of each function; the functions run in turn, so that a disturbance affects all."""
    found: list[list[float]] = [[] for _ in works]
    for round_number in range(WARM_UP + ROUNDS):
        for place, work in enumerate(works):
            began = time.perf_counter()
            work()
            if round_number >= WARM_UP:
                found[place].append(time.perf_counter() - began)
    return [statistics.median(seconds) for seconds in found]
