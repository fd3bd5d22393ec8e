"""A small space is tried out whole; of a larger one the points that nothing beats are found in few trials."""

from itertools import product

from shunter.extensions.compression.subject import Point, search_choices

CHOICES = {"a": ["0", "1", "2", "3"], "b": ["0", "1", "2", "3"], "c": ["0", "1", "2"]}


def costs(point: Point) -> tuple[float, float]:
    total = sum(map(int, point.values()))
    return float(total), float((8 - total) ** 2)


def test_all_points_of_a_small_space() -> None:
    found = search_choices(CHOICES, costs, 48)
    assert len({tuple(point.values()) for point, _ in found}) == len(list(product(*CHOICES.values()))) == 48


def test_few_trials_of_a_larger_one_hold_both_ends() -> None:
    calls: list[Point] = []

    def counted(point: Point) -> tuple[float, float]:
        calls.append(point)
        return costs(point)

    found = search_choices(CHOICES, counted, 20)
    assert len(found) == len(calls) <= 20
    assert all(known == costs(point) for point, known in found)
    assert min(known[0] for _, known in found) == 0
    assert search_choices(CHOICES, costs, 20) == search_choices(CHOICES, costs, 20)
