"""Points with two objectives, both minimised: the front, and the area below a reference that it dominates."""

from collections.abc import Sequence

Point = tuple[float, float]


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Indices of the points that no other one beats, by the first objective; both are minimised.

    Of points that are equal in both the first one counts.
    """
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda index: (points[index], index)):
        if not front or points[index][1] < points[front[-1]][1]:
            front.append(index)
    return front


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Area that the points dominate below a reference point, both objectives minimised; larger is better.

    Zitzler and Thiele, "Multiobjective Evolutionary Algorithms: A Comparative Case Study and the Strength Pareto
    Approach", IEEE Transactions on Evolutionary Computation 3(4), 1999, section III.

    Args:
        points: Points in any order; those that do not beat the reference in both objectives add nothing.
        reference: Point worse than what is of interest; only volumes below the same one can be compared.
    """
    inside = [point for point in points if point[0] < reference[0] and point[1] < reference[1]]
    area, ceiling = 0.0, reference[1]
    for index in non_dominated(inside):
        first, second = inside[index]
        area += (reference[0] - first) * (ceiling - second)
        ceiling = second
    return area
