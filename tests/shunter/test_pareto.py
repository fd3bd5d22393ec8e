"""Pareto fronts against brute force, with ties, equal points and unknown figures."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.pareto import Point, hypervolume, non_dominated, on_front

# Few distinct values, so that points often tie or are equal.
GRID = st.integers(0, 6)
POINTS = st.lists(st.tuples(GRID, GRID).map(lambda pair: (float(pair[0]), float(pair[1]))), max_size=12)
FIGURE = st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf, math.nan])


@pytest.mark.parametrize("columns", [2, 3])
@given(st.data())
def test_front_is_what_nobody_beats_in_everything(columns: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[FIGURE] * columns), max_size=25))
    points = np.array(rows, dtype=float).reshape(-1, columns)
    known = np.where(np.isnan(points), np.inf, points)
    beaten = [any((other <= row).all() and (other < row).any() for other in known) for row in known]
    assert on_front(points).tolist() == [not is_beaten for is_beaten in beaten]


def beats(point: Point, other: Point) -> bool:
    return point[0] <= other[0] and point[1] <= other[1] and point != other


@given(POINTS)
def test_front_has_each_point_once_the_first_of_equal_ones_by_the_first_objective(points: list[Point]) -> None:
    found = non_dominated(points)
    front = sorted({point for point in points if not any(beats(other, point) for other in points)})
    assert [points[index] for index in found] == front
    assert found == [points.index(point) for point in front]


@given(POINTS, st.tuples(GRID, GRID))
def test_hypervolume_is_the_number_of_unit_cells_that_a_point_dominates(
    points: list[Point], corner: tuple[int, int]
) -> None:
    cells = sum(
        any(x <= column and y <= row for x, y in points) for column, row in product(range(corner[0]), range(corner[1]))
    )
    assert hypervolume(points, (float(corner[0]), float(corner[1]))) == cells


@given(POINTS.filter(bool), st.tuples(GRID, GRID))
def test_hypervolume_never_falls_with_another_point_and_knows_no_order(points: list[Point], new: Point) -> None:
    reference = (7.0, 7.0)
    assert hypervolume([*points, new], reference) >= hypervolume(points, reference)
    assert hypervolume(points[::-1], reference) == hypervolume(points, reference)
