"""Learning which accelerator and which settings to take, replayed on recorded trainings.

Two replays: Zeus' recurring trainings (batch size, power cap and GPU under three objectives; `zeus.py`), and Gavel's
throughput table (GPU type of jobs that never ran on it; `gavel.py`). What plays is the product's own path with its
defaults, over a store and a machine that are backed by the tables (`product.py`, `gavel_product.py`). Its constants
were set on other recorded trainings (`work_priors.py`) or are round numbers set on none. Other tables of the same form
can be scored:

    python -m benchmarks.select --zeus DIR --gpus V100,P100 --gavel FILE
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import PICTURES, RESULTS, parse_arguments, publish, table
from benchmarks.select.figure import draw
from benchmarks.select.gavel import replay_gavel
from benchmarks.select.replay import RECURRENCES, replay
from benchmarks.select.zeus import DEFAULT_PRICE, GPUS, OBJECTIVES, Game, load_games
from shunter.settings import PROJECT_ROOT

CLUSTERS = PROJECT_ROOT.parent / "shared" / "data" / "clusters"
SEEDS, QUICK_SEEDS = (0,), (0, 1, 2)
QUICK_GAMES = 6  # a random sample


def main() -> None:
    """Replay both and publish; with `--only` the other one's figures stay as they were published."""
    arguments = parse_arguments(__doc__, _tables)
    seeds = QUICK_SEEDS if arguments.quick else SEEDS
    is_usual = (arguments.zeus, arguments.gpus) == (CLUSTERS / "zeus_nsdi23", ",".join(GPUS))
    name = "select" if is_usual else "select.other"
    before = RESULTS / f"{name}.json"
    kept = json.loads(before.read_text()) if arguments.only and before.exists() else {"headline": {}, "details": {}}
    others = {"zeus": "gavel", "gavel": "zeus"}.get(arguments.only, "")
    figures = {key: value for key, value in kept["headline"].items() if key.startswith(others)}
    details = kept["details"]
    if arguments.only != "gavel":
        zeus = _replay_zeus(arguments, seeds)
        figures |= _headline(zeus)
        details |= {"recurrences": RECURRENCES, "zeus": zeus}
    if arguments.only != "zeus":
        gavel_figures, details["gavel"] = replay_gavel(arguments.gavel, quick=arguments.quick)
        figures |= gavel_figures
    if not arguments.quick and is_usual and {"zeus", "gavel"} <= details.keys():
        draw(details["zeus"], details["gavel"]["by_share_held_out"], PICTURES / "select.png")
    publish(name, figures, details, seeds=seeds, quick=arguments.quick)


def _replay_zeus(arguments: argparse.Namespace, seeds: Sequence[int]) -> dict[str, Any]:
    games = load_games(arguments.zeus, arguments.gpus.split(","), default_price=arguments.default_price)
    with tempfile.TemporaryDirectory() as home:
        # As on a user's own machine, where the operator permits power limits; nothing of this one is read or written.
        os.environ |= {"SHUNTER_HOME": home, "SHUNTER_ALLOW_POWER_LIMIT": "true", "OMP_NUM_THREADS": "1"}
        played = sample(games) if arguments.quick else games
        zeus = replay(played, seeds, len(os.sched_getaffinity(0)), variants=arguments.variants)
    _print(zeus)
    return zeus


def sample(games: Sequence[Game]) -> list[Game]:
    """A random sample of the games, the same at every call."""
    places = np.random.default_rng(0).permutation(len(games))[:QUICK_GAMES]
    return [games[place] for place in sorted(places.tolist())]


def _tables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--variants", action="store_true", help="play --explore free and never as well")
    parser.add_argument("--only", choices=("zeus", "gavel"), help="replay this one alone")
    parser.add_argument("--zeus", type=Path, default=CLUSTERS / "zeus_nsdi23", help="folder of Zeus' tables")
    parser.add_argument("--gpus", default=",".join(GPUS), help="GPUs of Zeus' tables, the user's own first")
    parser.add_argument(
        "--default-price", type=float, default=DEFAULT_PRICE, help="dollars an hour of a GPU of unknown price"
    )
    parser.add_argument(
        "--gavel", type=Path, default=CLUSTERS / "gavel" / "simulation_throughputs.json", help="Gavel's table"
    )


def _headline(zeus: dict[str, Any]) -> dict[str, float]:
    own = zeus["shunter"]
    figures = {
        "zeus_regret_15": own["regret"]["mean"],
        "zeus_cumulative_regret": own["cumulative_regret"]["mean"],
        "zeus_stuck_share": own["stuck_share"],
        "zeus_regret_15_zeus": zeus["Zeus"]["regret"]["mean"],
        "zeus_cumulative_regret_zeus": zeus["Zeus"]["cumulative_regret"]["mean"],
        "zeus_stuck_share_zeus": zeus["Zeus"]["stuck_share"],
        "zeus_regret_15_random": zeus["random"]["regret"]["mean"],
        "zeus_regret_15_default": zeus["the user's default"]["regret"]["mean"],
    }
    for objective in OBJECTIVES:
        figures[f"zeus_regret_15_{objective}"] = own["regret_by_objective"][objective]
        figures[f"zeus_cumulative_regret_{objective}"] = own["cumulative_regret_by_objective"][objective]
    if "shunter --explore never" in zeus:
        never = zeus["shunter --explore never"]
        figures["zeus_regret_15_never"] = never["regret"]["mean"]
        figures["zeus_cumulative_regret_never"] = never["cumulative_regret"]["mean"]
    return figures


def _print(zeus: dict[str, Any]) -> None:
    def shown(figure: dict[str, float]) -> str:
        return f"{figure['mean']:.2%} ({figure['lowest']:.2%} to {figure['highest']:.2%})"

    table(
        f"Zeus: regret at recurrence {RECURRENCES}, mean of the games (lowest to highest seed)",
        ("strategy", "regret", "cumulative", "stuck", "time / energy / cost"),
        [
            (
                name,
                shown(result["regret"]),
                shown(result["cumulative_regret"]),
                f"{result['stuck_share']:.1%}",
                " / ".join(f"{value:.1%}" for value in result["regret_by_objective"].values()),
            )
            for name, result in zeus.items()
        ],
    )
