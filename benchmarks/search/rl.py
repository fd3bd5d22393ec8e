"""How many evaluations the controller needs with a past and without: on trained architectures, and on planted tables.

Two objectives are searched: NE alone, and the reward that weighs NE against the counted bytes
(`shunter.search.reward`). A search reaches its goal with the first point whose reward, by the mean NE of its trainings,
lies 95 % of the way from the mean of all points to the best one; one that has not after 64 trials counts as 64. What a
search is told is one training of a point, drawn at random; of tables whose points were trained once it is the one that
the goal is judged by too. No search begins with the space's default, which by NE is the best point of one table and
reaches the goal in the other. `rl_vs_cold_evaluations` is the mean number of evaluations with the other data set's
table as past over the mean number without a past, over all seeds of both data sets and both objectives.

    python -m benchmarks.search.rl [--seeds 20]
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.report import table as print_table
from benchmarks.search.cache import Cache
from benchmarks.search.replay import replay
from benchmarks.search.table import DATA, SEEDS, TrainedTable, load_trained
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.search.context import PastStudy
from shunter.search.protocol import Cost, Parameters
from shunter.search.reward import COST_WEIGHT
from tests.extensions.nas.reinforce import planted

SHARE = 0.95
TRIALS = 64  # of a search at most; one that has not reached its goal by then counts as so many
BUDGETS = (12, 24, 48)  # trials after which the best point is judged
FEW = 40  # random trials of a past that is no whole table
# Searches: the method, and where its past is from.
SEARCHES: Mapping[str, tuple[str, str]] = {
    "random": ("random", "none"),
    "tpe": ("tpe", "none"),
    "rl, cold": ("rl", "none"),
    "rl, past: all points of the other data": ("rl", "other"),
    "rl, past: 40 points of the other data": ("rl", "few of other"),
    "rl, past: 40 points of the same data": ("rl", "few of same"),
}
OBJECTIVES: Mapping[str, Cost | None] = {"NE": None, "NE against bytes": "parameter_bytes"}
COLD, WARM = "rl, cold", "rl, past: all points of the other data"


def measure(seeds: Sequence[int] = range(20), trainings: tuple[int, ...] | None = None) -> dict[str, Any]:
    """All figures of the controller; the headline key is `rl_vs_cold_evaluations`.

    Args:
        seeds: Seeds of the searches.
        trainings: Seeds of the trainings in the tables that a search is told of; None are those that are complete.

    Raises:
        FileNotFoundError: The tables of `benchmarks.search.table` are not trained.
    """
    with TemporaryDirectory() as folder:
        trained = _trained(Path(folder), trainings)
        searched = {
            f"{data}, {objective}": _search_all(data, trained, objective, seeds)
            for data in DATA
            for objective in OBJECTIVES
        }
    evaluations = {name: np.concatenate([one[name]["evaluations"] for one in searched.values()]) for name in SEARCHES}
    return {
        "rl_vs_cold_evaluations": float(evaluations[WARM].mean() / evaluations[COLD].mean()),
        "rl_vs_cold_p_value": _p_value(evaluations[WARM], evaluations[COLD]),
        "evaluations": {name: _spread(values) for name, values in evaluations.items()},
        "searches": {case: {name: _summary(one) for name, one in found.items()} for case, found in searched.items()},
        "planted": measure_planted(seeds),
        "seeds": len(seeds),
        "trainings_of_a_point": next(iter(trained.values())).ne.shape[1],
    }


def _trained(folder: Path, trainings: tuple[int, ...] | None) -> dict[str, TrainedTable]:
    """The tables with these trainings, or with as many as all of them have."""
    for count in range(len(SEEDS) if trainings is None else 1, 0, -1):
        try:
            return {data: load_trained(data, folder / data, trainings or SEEDS[:count]) for data in DATA}
        except FileNotFoundError:
            if count == 1:
                raise
    raise AssertionError


class _WithoutDefault(ArchitectureSpace):
    """The space of a table, with no point to try first."""

    def defaults(self) -> list[Parameters]:
        """None."""
        return []


def _search_all(
    data: str, trained: Mapping[str, TrainedTable], objective: str, seeds: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Evaluations to the goal, and the share of the way gone after each budget, of every search on one data set."""
    cache, found = Cache.of("search-rl"), {}
    for name, (method, source) in SEARCHES.items():
        runs = []
        for seed in seeds:
            key = {"data": data, "objective": objective, "search": name, "seed": seed, "trials": TRIALS}
            key |= {"trainings": trained[data].ne.shape[1]}
            one = partial(_run, data, trained, cost=OBJECTIVES[objective], method=method, source=source, seed=seed)
            runs.append(cache.get_or_make(key, one))
        ways = np.array(runs)  # share of the way after each trial
        reached = ways >= SHARE
        found[name] = {
            "evaluations": np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, TRIALS),
            "reached": float(reached.any(axis=1).mean()),
            "ways": {budget: ways[:, budget - 1] for budget in BUDGETS},
        }
        print(f"{data}, {objective}, {name}: {found[name]['evaluations'].mean():.1f} evaluations", flush=True)
    return found


def _run(
    data: str, trained: Mapping[str, TrainedTable], *, cost: Cost | None, method: str, source: str, seed: int
) -> list[float]:
    """One search: the share of the way from the mean point to the best one gone after each trial."""
    here = trained[data]
    random = np.random.default_rng((seed, 1))
    played = replay(
        method,
        _WithoutDefault(**dict(here.space)),
        lambda parameters: here.look_up(parameters, random),
        dataset=here.dataset,
        trials=TRIALS,
        seed=seed,
        cost=cost,
        past=_past(data, trained, source, seed),
    )
    worth = -here.ne.mean(axis=1)
    if cost is not None:
        worth = worth - COST_WEIGHT * np.log(here.parameter_bytes)
    ways = [(worth[here.place(one.parameters)] - worth.mean()) / (worth.max() - worth.mean()) for one in played]
    best = np.maximum.accumulate(ways)
    return [float(way) for way in np.concatenate([best, np.full(TRIALS - len(best), best[-1])])]


def _past(data: str, trained: Mapping[str, TrainedTable], source: str, seed: int) -> list[PastStudy]:
    """The past studies of a search; fields are matched by the order of the data sets' own."""
    if source == "none":
        return []
    other = data if source.endswith("same") else next(name for name in DATA if name != data)
    table, here = trained[other], trained[data]
    random = np.random.default_rng((seed, 2))
    count = len(table.points) if source == "other" else FEW
    names = dict(zip(table.space.factors(), here.space.factors(), strict=True))
    drawn = [table.points[place] for place in random.permutation(len(table.points))[:count]]
    trials = [({names[name]: value for name, value in point.items()}, table.look_up(point, random)) for point in drawn]
    return [PastStudy(name=other, trials=tuple(trials), distance=0.0 if other == data else 1.0)]


def measure_planted(seeds: Sequence[int]) -> dict[str, Any]:
    """Evaluations on the planted tables: how much past is needed, and what a wrong one costs."""
    cache = Cache.of("search-rl")

    def counted(name: str, past_of: planted.PastOf, *, trains_value: bool = True) -> np.ndarray:
        return np.array(
            [
                cache.get_or_make(
                    {"planted": name, "seed": seed},
                    lambda seed=seed: int(planted.over_seeds(past_of, [seed], trains_value=trains_value)[0]),
                )
                for seed in seeds
            ]
        )

    counts = {
        "random": planted.random_search(seeds),
        "cold": counted("cold", planted.cold),
        **{f"past of {share:.0%}": counted(f"warm {share}", planted.warm(share)) for share in (0.1, 0.25, 0.5, 1.0)},
        "value head not taught": counted("value cold", planted.warm(), trains_value=False),
        "past shuffled": counted("shuffled", planted.shuffled),
        "past unrelated": counted("unrelated", planted.unrelated),
        "past opposite": counted("opposite", planted.opposite),
    }
    new = [cache.get_or_make({"planted": "new data", "seed": seed}, lambda seed=seed: _on_new(seed)) for seed in seeds]
    counts |= {f"new data, {name}": np.array([one[name] for one in new]) for name in new[0]}
    cold = counts["cold"]
    return {name: _spread(values) | {"p_value_below_cold": _p_value(values, cold)} for name, values in counts.items()}


def _on_new(seed: int) -> dict[str, int]:
    return {name: int(counts[0]) for name, counts in planted.on_new_data([seed]).items()}


def _summary(found: Mapping[str, Any]) -> dict[str, Any]:
    ways = {f"way_after_{budget}": _spread(values) for budget, values in found["ways"].items()}
    return {"evaluations": _spread(found["evaluations"]), "share_that_reached_the_goal": found["reached"], **ways}


def _spread(values: np.ndarray) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "standard_deviation": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        "median": float(np.median(values)),
    }


def _p_value(fewer: np.ndarray, more: np.ndarray) -> float:
    """Of the rank test by Mann and Whitney that the first are fewer."""
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(fewer, more, alternative="less").pvalue)


def show(figures: Mapping[str, Any]) -> None:
    """Print the figures as tables."""
    for data, searches in figures["searches"].items():
        rows = [
            [
                name,
                f"{one['evaluations']['mean']:.1f} ± {one['evaluations']['standard_deviation']:.1f}",
                f"{one['share_that_reached_the_goal']:.0%}",
                *(f"{one[f'way_after_{budget}']['mean']:.3f}" for budget in BUDGETS),
            ]
            for name, one in searches.items()
        ]
        print_table(data, ["search", "evaluations", "reached", *(f"way after {budget}" for budget in BUDGETS)], rows)
    rows = [
        [name, f"{one['mean']:.1f} ± {one['standard_deviation']:.1f}", f"{one['median']:.1f}"]
        for name, one in figures["planted"].items()
    ]
    print_table("planted tables of 256 points", ["controller", "evaluations", "median"], rows)


def main() -> None:
    """Measure, print, and give the figures as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=20, help="searches of each kind on each data set")
    parser.add_argument("--trainings", type=int, help="trainings of each point that are looked up; all by default")
    arguments = parser.parse_args()
    figures = measure(range(arguments.seeds), SEEDS[: arguments.trainings] if arguments.trainings else None)
    show(figures)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
