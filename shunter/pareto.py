"""Pareto fronts of two or three objectives, all minimised, and the area that a front of two dominates."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]


def on_front(points: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the points on the Pareto front: no other point dominates them; less is better, NaN is worst.

    Rows are processed in the order of the first column. The front of the other two columns is kept as a sorted list.
    Its entry at or before a row's second value has the least third value so far, which decides whether the row is
    dominated (Kung, Luccio and Preparata, JACM 22(4), 1975). The time is O(n log n).

    Args:
        points: n rows of two or three columns.

    Returns:
        bool `[n]`; equal rows are all marked or all unmarked.
    """
    known = np.where(np.isnan(points), np.inf, points)
    if known.shape[1] == 2:  # a third objective in which all are equal changes nothing
        known = np.column_stack([known, np.zeros(len(known))])
    marked = np.zeros(len(known), dtype=bool)
    seconds: list[float] = []  # ascending
    thirds: list[float] = []  # descending
    previous, previous_marked = None, False
    for index in np.lexsort((known[:, 2], known[:, 1], known[:, 0])).tolist():
        row = tuple(known[index].tolist())
        if row == previous:  # equal rows do not beat each other
            marked[index] = previous_marked
            continue
        _, second, third = row
        step = bisect_right(seconds, second) - 1
        marked[index] = step < 0 or thirds[step] > third
        previous, previous_marked = row, bool(marked[index])
        if marked[index]:
            start = bisect_left(seconds, second)
            end = start
            while end < len(thirds) and thirds[end] >= third:
                end += 1
            seconds[start:end], thirds[start:end] = [second], [third]
    return marked


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points that no other point dominates, ordered by the first objective.

    Of equal points only the first one is returned.
    """
    marked = on_front(np.array(points, dtype=float).reshape(-1, 2))
    first_of: dict[Point, int] = {}
    for index in np.flatnonzero(marked).tolist():
        first_of.setdefault(points[index], index)
    return [first_of[point] for point in sorted(first_of)]


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Area that the points dominate below a reference point; larger is better.

    Zitzler and Thiele, "Multiobjective Evolutionary Algorithms: A Comparative Case Study and the Strength Pareto
    Approach", IEEE Transactions on Evolutionary Computation 3(4), 1999, section III.

    Args:
        points: Points in any order; those that do not beat the reference in both objectives add nothing.
        reference: Point worse than every point of interest. Hypervolumes with different reference points cannot be
            compared.
    """
    inside = [point for point in points if point[0] < reference[0] and point[1] < reference[1]]
    area, ceiling = 0.0, reference[1]
    for index in non_dominated(inside):
        first, second = inside[index]
        area += (reference[0] - first) * (ceiling - second)
        ceiling = second
    return area
