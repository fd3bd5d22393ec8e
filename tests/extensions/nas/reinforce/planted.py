"""Planted tables of 256 points whose best one is known: what a warm start is worth when its past is good, few or wrong.

A table has an effect of each of four factors, smaller ones of each pair of them, and noise, each drawn by the seed. NE
on the data that is searched has another level and spread than on the past data, with whose table it correlates by 0.85.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from shunter.extensions.nas.reinforce.controller import Controller
from shunter.extensions.nas.reinforce.experience import Actions, History
from shunter.search.protocol import BudgetLeft, Outcome, Parameters

SIZES = (4, 4, 4, 4)
POINTS = list(itertools.product(*map(range, SIZES)))
ACTIONS = Actions({f"factor_{index}": tuple(range(size)) for index, size in enumerate(SIZES)})
CORRELATION = 0.85
SHARE = 0.95  # of the way from an average point to the best one
DATA_SETS, KNOWN_POINTS = 6, 64  # of the past, where a search is on data that was never seen

PastOf = Callable[[int], Sequence[History]]


def standard_table(generator: np.random.Generator) -> np.ndarray:
    """The quality of the points, lower being better; mean 0 and variance 1 over them."""
    table = 0.15 * generator.normal(size=SIZES)
    for factor in range(len(SIZES)):
        shape = [1] * len(SIZES)
        shape[factor] = SIZES[factor]
        table += generator.normal(size=shape)
        for other in range(factor):
            pair = list(shape)
            pair[other] = SIZES[other]
            table += 0.4 * generator.normal(size=pair)
    return (table - table.mean()) / table.std()


def tables(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """NE of the points on the data that is searched, and on the past data."""
    generator = np.random.default_rng(seed)
    here, change = standard_table(generator), standard_table(generator)
    return 0.8 + 0.02 * here, 0.7 + 0.05 * (CORRELATION * here + (1 - CORRELATION**2) ** 0.5 * change)


def outcome_at(table: np.ndarray, point: Parameters) -> Outcome:
    """What comes of a point."""
    return Outcome(state="complete", validation_ne=float(table[tuple(point[name] for name in ACTIONS.names)]))


def history_of(table: np.ndarray, seed: int, share: float = 1.0, features: dict[str, float] | None = None) -> History:
    """The trials of a share of the points of a table, drawn at random."""
    drawn = np.random.default_rng(seed).permutation(len(POINTS))[: round(share * len(POINTS))]
    points = [ACTIONS.decode(POINTS[index]) for index in drawn]
    return History.of(ACTIONS, features or {}, [(point, outcome_at(table, point)) for point in points])


def goal_of(table: np.ndarray) -> float:
    """NE 95 % of the way from the mean to the best."""
    return float(table.mean() - SHARE * (table.mean() - table.min()))


def evaluations(table: np.ndarray, controller: Controller) -> int:
    """Points that are asked for until one reaches the goal; every point is asked for once."""
    goal = goal_of(table)
    for count in itertools.count(1):
        point = controller.ask(BudgetLeft())
        assert point is not None
        outcome = outcome_at(table, point)
        controller.tell(point, outcome)
        assert outcome.validation_ne is not None
        if outcome.validation_ne <= goal:
            return count
    raise AssertionError


def over_seeds(past_of: PastOf, seeds: Sequence[int], *, trains_value: bool = True) -> np.ndarray:
    """Evaluations of a controller with a past on the table of each seed, `[seeds]`."""
    return np.array(
        [
            evaluations(tables(seed)[0], Controller(ACTIONS, seed=seed, past=past_of(seed), trains_value=trains_value))
            for seed in seeds
        ]
    )


def cold(seed: int) -> Sequence[History]:
    """No past."""
    return []


def warm(share: float = 1.0) -> PastOf:
    """A share of the past data's table."""
    return lambda seed: [history_of(tables(seed)[1], seed, share)]


def shuffled(seed: int) -> Sequence[History]:
    """The past data's table with its values in another order."""
    table = tables(seed)[1]
    return [history_of(np.random.default_rng(seed).permutation(table.ravel()).reshape(table.shape), seed)]


def opposite(seed: int) -> Sequence[History]:
    """The past data's table with the best point as the worst."""
    return [history_of(1.4 - tables(seed)[1], seed)]


def unrelated(seed: int) -> Sequence[History]:
    """A table that has nothing to do with the one that is searched."""
    return [history_of(standard_table(np.random.default_rng(10_000 + seed)), seed)]


def random_search(seeds: Sequence[int]) -> np.ndarray:
    """Evaluations of draws without return, `[seeds]`."""
    orders = [(tables(seed)[0], np.random.default_rng(seed).permutation(tables(seed)[0].ravel())) for seed in seeds]
    return np.array([int(np.argmax(order <= goal_of(table))) + 1 for table, order in orders])


def family(seed: int) -> tuple[list[History], np.ndarray, dict[str, float]]:
    """Past data sets whose effects follow their meta-features, and one between them that nobody has searched.

    Returns:
        The past, the table of the new data, and its meta-features.
    """
    generator = np.random.default_rng(20_000 + seed)
    common, first, second = (standard_table(generator) for _ in range(3))

    def table_at(place: np.ndarray) -> np.ndarray:
        return 0.8 + 0.02 * (0.5 * common + place[0] * first + place[1] * second)

    def features_at(place: np.ndarray) -> dict[str, float]:
        return {"first": float(place[0]), "second": float(place[1])}

    past = []
    for number in range(DATA_SETS):
        place = generator.uniform(-1, 1, 2)
        past.append(history_of(table_at(place), seed + number, KNOWN_POINTS / len(POINTS), features_at(place)))
    place = generator.uniform(-0.7, 0.7, 2)
    return past, table_at(place), features_at(place)


def on_new_data(seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """Evaluations on a data set that was held out, `[seeds]`: by the surrogate's order, cold, and both together."""
    found: dict[str, list[int]] = {"supervised": [], "cold": [], "hybrid": []}
    for seed in seeds:
        past, table, features = family(seed)
        found["cold"].append(evaluations(table, Controller(ACTIONS, seed=seed)))
        found["hybrid"].append(evaluations(table, Controller(ACTIONS, seed=seed, past=past, features=features)))
        found["supervised"].append(_by_surrogate(past, table, features, seed))
    return {name: np.array(counts) for name, counts in found.items()}


def _by_surrogate(past: Sequence[History], table: np.ndarray, features: dict[str, float], seed: int) -> int:
    """Points tried in the order of the surrogate's predictions, which learns nothing more, until one is at the goal."""
    from shunter.extensions.nas.reinforce.guide import guide_for

    guide = guide_for(ACTIONS, past, features, None, seed=seed)
    assert guide is not None
    guide.fit()
    actions = np.array(POINTS)
    order = np.argsort(-guide.predict(actions), kind="stable")
    return int(np.argmax(table[tuple(actions[order].T)] <= goal_of(table))) + 1
