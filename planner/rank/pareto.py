"""Which candidates nobody beats in everything."""

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import NDArray


def front(figures: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the rows that no other row matches in all three columns and beats in one; less is better, NaN is worst.

    Rows are taken in the order of the first column. Of the other two, a staircase is kept: no step of it is beaten by
    another, so the step at or before a row's second value has the least third value so far, and says whether the row is
    beaten (Kung, Luccio and Preparata, JACM 22(4), 1975). n log n for n rows.

    Args:
        figures: n rows of three columns.
    """
    figures = np.where(np.isnan(figures), np.inf, figures)
    marked = np.zeros(len(figures), dtype=bool)
    seconds: list[float] = []  # ascending
    thirds: list[float] = []  # descending
    previous, previous_marked = None, False
    for index in np.lexsort((figures[:, 2], figures[:, 1], figures[:, 0])).tolist():
        row = tuple(figures[index].tolist())
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
