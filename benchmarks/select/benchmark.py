"""Learning which accelerator and which settings to take, replayed on recorded trainings.

Two replays: Zeus' recurring trainings (batch size, power cap and GPU under three objectives; `zeus.py`), and
Gavel's throughput table (GPU type of jobs that never ran on it; `gavel.py`). The learning is the product's own
(`planner.history`), which sees no figure before it is revealed. Its priors, and the least gain for which it tries,
were set by hand with these tables in view, as there are no others; with priors twice and half as wide it is shown too.
The picture beside the result shows the curves.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import RESULTS, parse_arguments, publish, table
from benchmarks.select.figure import draw
from benchmarks.select.gavel import GPUS as TYPES
from benchmarks.select.gavel import (
    Table,
    choose_type,
    complete,
    coverage,
    hold_out,
    load_table,
    prices_of,
    regrets,
    rules,
)
from benchmarks.select.strategies import EPOCH_COST, SPREAD, Default, Grid, Player, Random, Shunter, Zeus
from benchmarks.select.zeus import GPUS, OBJECTIVES, Arm, Game, Objective, Order, Outcome, load_game, load_games
from hardware.catalogue.rows import AcceleratorRow, load_catalogue
from planner.history import Posterior, Priors, Traits, choose_under_uncertainty
from shunter.settings import PROJECT_ROOT

CLUSTERS = PROJECT_ROOT.parent / "shared" / "data" / "clusters"
RECURRENCES = 15
SEEDS = tuple(range(20))
HELD_OUT = 1 / 3
SHARES = (0.1, 0.2, HELD_OUT, 0.45, 0.6, 0.75)
MOST_REFUSALS = 20  # orders that cannot pay for an epoch, before a recurrence counts as lost
# What the authors' tables say of NCF, objective per objective: (GPU, objective) -> batch size, cap, amount.
PUBLISHED: dict[tuple[str, Objective], tuple[int, int, float]] = {
    ("V100", "energy"): (16384, 150, 1079),
    ("V100", "time"): (16384, 175, 30.9),
    ("P100", "energy"): (16384, 250, 1751),
    ("P100", "time"): (16384, 250, 52.0),
}

MakePlayer = Callable[..., Player]


def play_game(game: Game, make: MakePlayer, seed: int) -> tuple[list[float], float]:
    """One strategy through all recurrences of a game.

    Returns:
        Regret of each recurrence, and the cumulative regret.
    """
    random = np.random.default_rng([seed, 0])
    player = make(game.menu, np.random.default_rng([seed, 1]))
    measured: set[Arm] = set()
    expected, spent = [], 0.0
    for _ in range(RECURRENCES):
        order, outcome = _run(game, player, measured, random)
        if order.cap is None and outcome.epochs:
            measured.add(order.arm)
        expected.append(game.regret(order))
        spent += outcome.spent + (0.0 if outcome.reached else game.optimum[2])
    return expected, spent / (RECURRENCES * game.optimum[2]) - 1


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


def strategies(traits: dict[str, Traits]) -> dict[str, MakePlayer]:
    """All that play, by the name they bear in tables; Shunter's default rule first."""
    shunter = partial(Shunter, traits=traits)
    return {
        "shunter": shunter,
        "shunter, priors twice as wide": partial(shunter, priors=_widened(2.0), spread=2.0 * SPREAD),
        "shunter, priors half as wide": partial(shunter, priors=_widened(0.5), spread=0.5 * SPREAD),
        "shunter, Thompson": partial(shunter, strategy="thompson"),
        "shunter, optimistic": partial(shunter, strategy="optimistic"),
        "shunter, greedy": partial(shunter, strategy="greedy"),
        "Zeus": Zeus,
        "grid": Grid,
        "random": Random,
        "default": Default,
    }


def replay_zeus(games: list[Game], traits: dict[str, Traits], seeds: tuple[int, ...]) -> dict[str, Any]:
    """Every strategy on every game with every seed."""
    result: dict[str, Any] = {}
    for name, make in strategies(traits).items():
        played = [[play_game(game, make, seed) for game in games] for seed in seeds]
        expected = np.array([[regret for regret, _ in row] for row in played])  # [seeds, games, recurrences]
        result[name] = {
            "regret": _spread(expected[:, :, -1].mean(axis=1)),
            "regret_by_recurrence": expected.mean(axis=(0, 1)).tolist(),
            "median_regret_by_recurrence": np.median(expected, axis=(0, 1)).tolist(),
            "share_of_optimal_choices": float((expected[:, :, -1] < 1e-9).mean()),
            "cumulative_regret": _spread(np.array([np.mean([total for _, total in row]) for row in played])),
            "regret_11_to_15": _spread(expected[:, :, 10:].mean(axis=(1, 2))),
            "regret_by_game": {
                f"{game.name}, {game.objective}": float(value)
                for game, value in zip(games, expected[:, :, -1].mean(axis=0), strict=True)
            },
            "regret_by_objective": {
                objective: float(expected[:, [game.objective == objective for game in games], -1].mean())
                for objective in OBJECTIVES
            },
        }
    return result


def choose_informed(game: Game) -> tuple[Arm, int]:
    """What the policy takes when everything is known: exact means, and what share of the seeds reaches the target."""
    options = [(arm, cap) for arm, costs in game.epoch_costs.items() for cap in costs]
    reaches = [game.success_probability(arm.batch_size) == 1 for arm, _ in options]
    means = [
        float(np.log(game.epoch_costs[arm][cap] * game.epochs[arm.batch_size].mean())) if sure else 0.0
        for (arm, cap), sure in zip(options, reaches, strict=True)
    ]
    certain = Posterior(np.array(means), np.zeros((len(means), len(means))))
    return options[choose_under_uncertainty(certain, excluded=[not sure for sure in reaches]).index]


def check_oracles(games: list[Game], folder: Path) -> dict[str, Any]:
    """Choices with full information against the recorded optimum, and NCF's against the published figures."""
    matches = {f"{game.name}, {game.objective}": choose_informed(game) == game.optimum[:2] for game in games}
    published = {}
    for (gpu, objective), (batch_size, cap, amount) in PUBLISHED.items():
        game = load_game(folder, "NCF", gpu, objective)
        arm, chosen_cap = choose_informed(game)
        cost = game.expected_costs()[arm, chosen_cap]
        published[f"NCF on {gpu}, {objective}"] = {
            "batch_size": arm.batch_size,
            "watts": chosen_cap,
            "amount": cost,
            "matches": (arm.batch_size, chosen_cap) == (batch_size, cap) and abs(cost / amount - 1) < 2e-3,
        }
    hard = load_game(folder, "NCF", "V100", "time", target_metric=0.42)
    return {
        "optimum_chosen": matches,
        "published": published,
        "success_probability_at_0.42": {str(size): hard.success_probability(size) for size in sorted(hard.epochs)},
    }


def replay_gavel(
    recorded: Table, rows: dict[str, AcceleratorRow], seeds: tuple[int, ...], share: float
) -> dict[str, Any]:
    """Regret of the choice with a share of the pairs held out, beside the rules that look at no measurement."""
    result: dict[str, Any] = {
        "median_error": _spread(np.array([_error(recorded, share, seed) for seed in seeds])),
        "interval_90_holds": _spread(np.array([coverage(recorded, hold_out(recorded, share, seed)) for seed in seeds])),
    }
    for objective in ("time", "cost"):
        prices = prices_of(objective)
        chosen = {
            "shunter": np.array(
                [
                    regrets(recorded.seconds, prices, choose_type(_completed(recorded, share, seed), prices))
                    for seed in seeds
                ]
            ),
            **{
                name: regrets(recorded.seconds, prices, rule(recorded.fits))[None] for name, rule in rules(rows).items()
            },
        }
        hidden = np.array([hold_out(recorded, share, seed).any(axis=1) for seed in seeds])
        result[objective] = {
            name: {
                "regret": _spread(values.mean(axis=1)),
                "regret_recommendation": _spread(values[:, recorded.is_recommendation].mean(axis=1)),
            }
            for name, values in chosen.items()
        }
        with_hidden = [row[mask].mean() for row, mask in zip(chosen["shunter"], hidden, strict=True)]
        result[objective]["shunter"]["regret_of_jobs_with_hidden_pairs"] = _spread(np.array(with_hidden))
    return result


def main() -> None:
    """Replay both and publish."""
    arguments = parse_arguments(__doc__)
    seeds = SEEDS[:3] if arguments.quick else SEEDS
    catalogue = load_catalogue()
    rows = {gpu: catalogue.find_accelerator(gpu) for gpu in TYPES}
    games = load_games(CLUSTERS / "zeus_nsdi23")
    oracles = check_oracles(games, CLUSTERS / "zeus_nsdi23")
    zeus = replay_zeus(games, {gpu: Traits.of(rows[gpu]) for gpu in GPUS}, seeds)
    recorded = load_table(CLUSTERS / "gavel" / "simulation_throughputs.json", rows)
    single = load_table(CLUSTERS / "gavel" / "simulation_throughputs.json", rows, largest_count=1)
    gavel = replay_gavel(recorded, rows, seeds, HELD_OUT)
    by_share = {share: replay_gavel(recorded, rows, seeds, share) for share in SHARES}
    _print(zeus, gavel)
    draw(zeus, by_share, RESULTS / f"select{'.quick' if arguments.quick else ''}.png")
    matched = [*oracles["optimum_chosen"].values(), *(one["matches"] for one in oracles["published"].values())]
    publish(
        "select",
        {
            "zeus_regret_15": zeus["shunter"]["regret"]["mean"],
            "zeus_regret_15_zeus": zeus["Zeus"]["regret"]["mean"],
            "zeus_regret_11_to_15": zeus["shunter"]["regret_11_to_15"]["mean"],
            "zeus_regret_11_to_15_zeus": zeus["Zeus"]["regret_11_to_15"]["mean"],
            "zeus_cumulative_regret": zeus["shunter"]["cumulative_regret"]["mean"],
            "zeus_oracle_matches": sum(matched) / len(matched),
            "gavel_regret": gavel["time"]["shunter"]["regret"]["mean"],
            "gavel_regret_newest": gavel["time"]["newest"]["regret"]["mean"],
            "gavel_regret_cost": gavel["cost"]["shunter"]["regret"]["mean"],
            "gavel_regret_cheapest": gavel["cost"]["cheapest"]["regret"]["mean"],
            "gavel_regret_recommendation": gavel["time"]["shunter"]["regret_recommendation"]["mean"],
            "gavel_regret_recommendation_newest": gavel["time"]["newest"]["regret_recommendation"]["mean"],
        },
        {
            "games": len(games),
            "objectives": OBJECTIVES,
            "recurrences": RECURRENCES,
            "oracles": oracles,
            "zeus": zeus,
            "gavel": gavel,
            "gavel_single_gpu": replay_gavel(single, rows, seeds, HELD_OUT),
            "gavel_by_share_held_out": {f"{share:.2f}": result for share, result in by_share.items()},
            "gavel_faults": recorded.faults,
        },
        seeds=seeds,
        quick=arguments.quick,
    )


def _widened(factor: float) -> Priors:
    """The priors of the replay with every effect believed to be worth `factor` times as much."""
    effects = ("family", "batch", "accelerator", "family_on_accelerator", "batch_on_accelerator", "all_three")
    return replace(EPOCH_COST, **{name: factor * getattr(EPOCH_COST, name) for name in effects})


def _completed(recorded: Table, share: float, seed: int) -> np.ndarray:
    hidden = hold_out(recorded, share, seed)
    return complete(recorded.situations, np.where(hidden, np.nan, recorded.seconds), recorded.fits)


def _error(recorded: Table, share: float, seed: int) -> float:
    """Median relative error of the hidden pairs."""
    hidden = hold_out(recorded, share, seed)
    completed = _completed(recorded, share, seed)
    return float(np.median(np.abs(completed[hidden] / recorded.seconds[hidden] - 1)))


def _spread(values: np.ndarray) -> dict[str, float]:
    """Mean over seeds, and how far they lie apart."""
    return {
        "mean": float(values.mean()),
        "deviation": float(values.std()),
        "lowest": float(values.min()),
        "highest": float(values.max()),
    }


def _print(zeus: dict[str, Any], gavel: dict[str, Any]) -> None:
    def shown(one: dict[str, float]) -> str:
        return f"{one['mean']:.2%} ({one['lowest']:.2%} to {one['highest']:.2%})"

    table(
        f"Zeus: regret at recurrence {RECURRENCES}, mean of the games (lowest to highest seed)",
        ("strategy", "regret", "of 11 to 15", "cumulative"),
        [
            (name, shown(one["regret"]), f"{one['regret_11_to_15']['mean']:.2%}", shown(one["cumulative_regret"]))
            for name, one in zeus.items()
        ],
    )
    print(
        f"Gavel: median error of hidden pairs {shown(gavel['median_error'])}, "
        f"intervals of 90 % hold {shown(gavel['interval_90_holds'])}"
    )
    for objective in ("time", "cost"):
        table(
            f"Gavel: regret in {objective}, a third of the pairs held out",
            ("rule", "all jobs", "recommendation"),
            [
                (name, shown(one["regret"]), shown(one["regret_recommendation"]))
                for name, one in gavel[objective].items()
            ],
        )
