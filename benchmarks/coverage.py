"""Whether what is promised of a job holds: intervals of time and energy against what the runs took.

Zeus' recorded trainings, on one GPU each, repeated 30 times for least energy by the product's own `choose` and its
defaults over a store of its own, as in `benchmarks.select`: what a run takes varies with the recorded seeds, batch
sizes and power limits, and later choices go elsewhere than earlier ones. Each decision's interval is judged by its
own run, before that run is learned from. The intervals are order statistics of what earlier runs took
(`shunter.planner.calibration`), so no constant was set on these or any other tables.

`*_coverage_LEVEL` is the share of runs inside the interval of that level, `*_width_LEVEL` the median of its upper over
its lower end. Explorations promise nothing, and neither do the first runs of a job; `promised` is the share of the
judged runs whose decision promised something. Runs that were stopped are not judged.

    python -m benchmarks.coverage [--quick] [--zeus DIR] [--gpus A,B]
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import parse_arguments, publish, table
from benchmarks.select.benchmark import CLUSTERS
from benchmarks.select.product import Promise, play_product
from benchmarks.select.zeus import GPUS, Game, load_games
from shunter.planner.calibration import LEVELS

RECURRENCES, QUICK_RECURRENCES = 30, 12
OBJECTIVE = "energy"  # for which power limits are chosen as well
QUANTITIES = ("seconds", "joules")
SEED = 0


def promises_of(game: Game, recurrences: int) -> list[Promise]:
    """What the product promised of each run of one game."""
    return play_product(game, recurrences, SEED).promises


def judge(promises: Sequence[Promise]) -> dict[str, float | int]:
    """Coverage and width by quantity and level."""
    figures: dict[str, float | int] = {}
    for quantity in QUANTITIES:
        own = [promise for promise in promises if promise.quantity == quantity]
        for level in LEVELS:
            of_level = [promise for promise in own if promise.level == level]
            if of_level:
                name = f"{100 * level:.0f}"
                figures[f"{quantity}_coverage_{name}"] = sum(one.was_kept for one in of_level) / len(of_level)
                figures[f"{quantity}_width_{name}"] = median(one.high / one.low for one in of_level)
                figures[f"{quantity}_runs_{name}"] = len(of_level)
        if own:
            figures[f"{quantity}_promised"] = sum(one.level is not None for one in own) / len(own)
    return figures


def main() -> None:
    """Play all games, judge and publish."""
    arguments = parse_arguments(__doc__, _tables)
    recorded = load_games(arguments.zeus, arguments.gpus.split(","))
    games = [game for game in recorded if game.objective == OBJECTIVE and len(game.gpus) == 1]
    games, recurrences = (games[:2], QUICK_RECURRENCES) if arguments.quick else (games, RECURRENCES)
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"SHUNTER_HOME": home, "SHUNTER_ALLOW_POWER_LIMIT": "true", "OMP_NUM_THREADS": "1"}
        with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
            played = list(pool.map(partial(promises_of, recurrences=recurrences), games))
    figures = judge([promise for promises in played for promise in promises])
    table("Intervals", ("figure", "value"), [(name, f"{value:.4g}") for name, value in figures.items()])
    by_game: dict[str, Any] = {game.name: judge(promises) for game, promises in zip(games, played, strict=True)}
    publish(
        "coverage",
        {**figures, "games": len(games), "recurrences": recurrences},
        {"by_game": by_game},
        seeds=(SEED,),
        quick=arguments.quick,
    )


def _tables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--zeus", type=Path, default=CLUSTERS / "zeus_nsdi23", help="folder of Zeus' tables")
    parser.add_argument("--gpus", default=",".join(GPUS), help="GPUs of Zeus' tables, the user's own first")


if __name__ == "__main__":
    main()
