"""All recorded games played by Shunter's own path and by its rivals, and what they lost."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.select.product import play_product
from benchmarks.select.strategies import Default, Grid, Player, Random, Zeus
from benchmarks.select.zeus import OBJECTIVES, Arm, Game, Order, Outcome

RECURRENCES = 15
MOST_REFUSALS = 20  # orders that cannot pay for an epoch, before a recurrence counts as lost
STUCK = 0.1  # regret at each of the last `STUCK_RUNS` recurrences, from which on a replay counts as stuck
STUCK_RUNS = 5

RIVALS: dict[str, Callable[..., Player]] = {"Zeus": Zeus, "grid": Grid, "random": Random, "the user's default": Default}
PRODUCT = {"shunter": None, "shunter --explore free": "free", "shunter --explore never": "never"}


@dataclass(frozen=True)
class Played:
    """One game, played through.

    Attributes:
        regrets: Expected regret of each recurrence.
        cumulative: What was spent in all over the optimum, less 1.
    """

    regrets: list[float]
    cumulative: float

    @property
    def is_stuck(self) -> bool:
        """Whether the last recurrences all lost clearly."""
        return min(self.regrets[-STUCK_RUNS:]) > STUCK


def play_rival(game: Game, seed: int, *, name: str) -> Played:
    """One rival through all recurrences of a game.

    Args:
        game: The game.
        seed: Seed of the recorded trainings that are drawn, and of the strategy's own draws.
        name: Key of `RIVALS`.
    """
    random = np.random.default_rng([seed, 0])
    player = RIVALS[name](game.menu, np.random.default_rng([seed, 1]))
    measured: set[Arm] = set()
    expected, spent = [], 0.0
    for _ in range(RECURRENCES):
        order, outcome = _run(game, player, measured, random)
        if order.cap is None and outcome.epochs:
            measured.add(order.arm)
        expected.append(game.regret(order))
        spent += outcome.spent + (0.0 if outcome.reached else game.optimum[2])
    return Played(expected, spent / (RECURRENCES * game.optimum[2]) - 1)


def _run(game: Game, player: Player, measured: Collection[Arm], random: np.random.Generator) -> tuple[Order, Outcome]:
    """One recurrence: what is ordered until something runs; an order that cannot pay for an epoch costs nothing."""
    order = player.choose()
    outcome = game.play(order, order.arm in measured, random)
    player.observe(outcome)
    for _ in range(MOST_REFUSALS):
        if outcome.epochs:
            break
        order = player.choose()
        outcome = game.play(order, order.arm in measured, random)
        player.observe(outcome)
    return order, outcome


def play_shunter(game: Game, seed: int, *, explore: str | None) -> Played:
    """The product through all recurrences of a game; see `benchmarks.select.product`."""
    play = play_product(game, RECURRENCES, seed, explore=explore)
    return Played(play.regrets, play.cumulative)


def replay(games: Sequence[Game], seeds: Sequence[int], processes: int, *, variants: bool = False) -> dict[str, Any]:
    """Every strategy on every game with every seed.

    The product's variants are played with the first seed alone, since a choice takes most of a second.

    Args:
        games: The games.
        seeds: Seeds.
        processes: Processes that play.
        variants: Whether the product's other ways to explore play too.
    """
    result = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for name, explore in PRODUCT.items():
            if explore is not None and not variants:
                continue
            asked = seeds if explore is None else seeds[:1]
            result[name] = _figures(games, _all(pool, partial(play_shunter, explore=explore), games, asked))
            print(f"{name}: {result[name]['regret']['mean']:.2%}", flush=True)
        for name in RIVALS:
            result[name] = _figures(games, _all(pool, partial(play_rival, name=name), games, seeds))
    return result


def _all(
    pool: ProcessPoolExecutor, play: Callable[..., Played], games: Sequence[Game], seeds: Sequence[int]
) -> list[list[Played]]:
    """`[seeds][games]`."""
    flat = list(pool.map(play, list(games) * len(seeds), [seed for seed in seeds for _ in games], chunksize=3))
    return [flat[start : start + len(games)] for start in range(0, len(flat), len(games))]


def _figures(games: Sequence[Game], played: list[list[Played]]) -> dict[str, Any]:
    expected = np.array([[game.regrets for game in row] for row in played])  # [seeds, games, recurrences]
    cumulative = np.array([[game.cumulative for game in row] for row in played])
    stuck = np.array([[game.is_stuck for game in row] for row in played])

    def of(objective: str) -> list[bool]:
        return [game.objective == objective for game in games]

    return {
        "seeds": len(played),
        "regret": spread(expected[:, :, -1].mean(axis=1)),
        "cumulative_regret": spread(cumulative.mean(axis=1)),
        "stuck_share": float(stuck.mean()),
        "regret_by_recurrence": expected.mean(axis=(0, 1)).tolist(),
        "regret_by_objective": {name: float(expected[:, of(name), -1].mean()) for name in OBJECTIVES},
        "cumulative_regret_by_objective": {name: float(cumulative[:, of(name)].mean()) for name in OBJECTIVES},
        "stuck_share_by_objective": {name: float(stuck[:, of(name)].mean()) for name in OBJECTIVES},
        "regret_by_game": {
            f"{game.name}, {game.objective}": float(value)
            for game, value in zip(games, expected[:, :, -1].mean(axis=0), strict=True)
        },
        "cumulative_regret_by_game": {
            f"{game.name}, {game.objective}": float(value)
            for game, value in zip(games, cumulative.mean(axis=0), strict=True)
        },
    }


def spread(values: np.ndarray) -> dict[str, float]:
    """Mean over seeds, and how far they lie apart."""
    return {
        "mean": float(values.mean()),
        "deviation": float(values.std()),
        "lowest": float(values.min()),
        "highest": float(values.max()),
    }
