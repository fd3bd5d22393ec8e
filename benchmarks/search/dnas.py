"""Fronts of differentiable architecture search against those of its rivals, by equally many trained candidates.

The rivals are random search, MOTPE, which is what `tpe` is with two objectives (Ozaki et al., JAIR 73, 2022), and
NSGA-II, each by the product's own method; all begin with the default. Each method proposes architectures of the same
space, and each is trained from scratch in the same way. The front is of validation NE against bytes of the parameters,
which are counted, and against the processor's time for a step, which is measured on one thread and not by the clock on
the wall, for other work runs beside it. A front's figure is the area that it dominates (hypervolume) over NE and the
logarithm of the cost, below the worst NE and the highest cost of any candidate of any method on that data; a second
figure takes a prediction of the base rate, NE 1, instead of the worst, and a third, `beyond_default`, the NE and the
cost of the default, so that only what beats the default in both counts. The rivals train no super-net; with as much of
the processor's time as `dnas` took in all, super-net included, random search trains more candidates, and so does a
search of MOTPE that was told of twice as many: the ratios at equal time are told beside the others.

How well the super-net ranks architectures is measured with it: `one_shot.py`.

    python -m benchmarks.search.dnas [--data frappe ml1m]

measures what is not written down yet, so that data sets can be measured side by side; `python -m benchmarks.search
--parts dnas` publishes it.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from benchmarks.search.cache import Cache
from benchmarks.search.data import load
from benchmarks.search.one_shot import correlations, inherited, spearman
from benchmarks.search.replay import context_of, replay
from benchmarks.search.table import RATES
from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.job import TrainingJob
from shunter.engine.loop.step import applied, build_dense_optimizer, train_step
from shunter.engine.loop.trainer import train
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.models.registry import build_model
from shunter.pareto import Point, hypervolume
from shunter.search.context import SearchContext
from shunter.search.methods.registry import build_method
from shunter.search.protocol import BudgetLeft, Cost, Outcome, Parameters, SearchMethod

ROWS = {"train": 20_000, "validation": 10_000, "test": 0}
DATA = ("frappe", "ml1m")
SEEDS = (0, 1, 2)
CANDIDATES = 16
COSTS: tuple[Cost, ...] = ("parameter_bytes", "step_seconds")
# Candidates of each search, by those that are compared: of two so many that equal time is reached.
METHODS = {"random": 2, "dnas": 1, "motpe": 1, "nsga2": 1, "motpe_longer": 2}
PRODUCT = {"motpe": "tpe", "motpe_longer": "tpe"}  # the product's names, where they are others
COMPARED = ("random", "dnas", "motpe", "nsga2")
PAIRS = (("dnas", "random"), ("motpe", "random"), ("nsga2", "random"), ("dnas", "motpe"), ("dnas", "nsga2"))
EQUAL_TIME = {"random": "random", "motpe": "motpe_longer"}  # whose first candidates are those of equal time
REPEATED = 24  # architectures that are trained with a second seed
SCHEDULE = Schedule(max_epochs=4)
EXECUTION = Execution(threads=1)
TIMED_STEPS = 20

Runs = Mapping[str, Sequence[Mapping[str, Any]]]


def measure(folder: Path, data: Sequence[str] = DATA) -> dict[str, Any]:
    """Every method, cost, data set and seed; what is in the cache is not measured again.

    Args:
        folder: Folder where the data sets are kept.
        data: Names in `DATA`.

    Returns:
        Of each pair `<method>_vs_<rival>_hypervolume`, the mean over data sets, costs and seeds of the ratio of the
        areas, with its spread and its variants; of each data set `one_shot_..._<data>`; and all candidates.
    """
    cache = Cache.of("search_dnas")
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    one_shot: dict[str, dict[str, Any]] = {}
    for name in data:
        searches = _Searches(load(name, folder, ROWS), cache)
        for cost in COSTS:
            runs[f"{name} {cost}"] = {
                method: [searches.once(method, cost, times * CANDIDATES, seed) for seed in SEEDS]
                for method, times in METHODS.items()
            }
        one_shot[name] = _one_shot(searches, runs[f"{name} {COSTS[0]}"]["random"])
    compared = {of: compare(by_method, of.split()[1], CANDIDATES) for of, by_method in runs.items()}
    return {
        **_headline(compared),
        **{f"one_shot_{figure}_{name}": value for name, of in one_shot.items() for figure, value in of.items()},
        "candidates": CANDIDATES,
        "rows": ROWS,
        "seeds": list(SEEDS),
        "compared": compared,
        "runs": runs,
    }


class _Searches:
    """Searches and trainings on one data set, each made once.

    Args:
        dataset: The data.
        cache: Where they are written down.
    """

    def __init__(self, dataset: Dataset, cache: Cache) -> None:
        self.dataset, self._cache = dataset, cache
        self.space = ArchitectureSpace.for_dataset(dataset, hyperparameters=RATES)

    def once(self, method: str, cost: Cost, candidates: int, seed: int) -> dict[str, Any]:
        """A search: its candidates, and the seconds that the method itself took, of `dnas` most for the super-net."""
        of = {"data": self.dataset.fingerprint, "candidates": candidates, "seed": seed}
        # Random search proposes the same points whatever the cost.
        key = {"method": method, **({} if method == "random" else {"cost": cost}), **of}

        def make() -> dict[str, Any]:
            timed: list[_Timed] = []

            def build(context: SearchContext) -> SearchMethod:
                timed.append(_Timed(build_method(PRODUCT.get(method, method), context)))
                return timed[0]

            def look_up(parameters: Parameters) -> Outcome:
                found = self.trained(parameters, seed)
                ne, costs, seconds = found["ne"], found["costs"], found["seconds"]
                return Outcome(state="complete", validation_ne=ne, costs=costs, seconds=seconds)

            played = replay(build, self.space, look_up, dataset=self.dataset, trials=candidates, seed=seed, cost=cost)
            return {
                "method_seconds": timed[0].seconds,
                "candidates": [
                    {"point": one.parameters, "ne": one.outcome.validation_ne, **one.outcome.costs}
                    | {"seconds": one.outcome.seconds}
                    for one in played
                ],
            }

        return self._cache.get_or_make(key, make)

    def trained(self, parameters: Parameters, seed: int) -> dict[str, Any]:
        """One candidate, from scratch."""
        key = {"data": self.dataset.fingerprint, "point": parameters, "seed": seed}
        return self._cache.get_or_make(key, lambda: _train(self.dataset, self.space, parameters, seed))

    def inherited(self, points: Sequence[Parameters], seed: int) -> list[float]:
        """NE of architectures with the weights of a super-net."""
        key = {"inherited": self.dataset.fingerprint, "points": points, "seed": seed}

        def make() -> list[float]:
            with tempfile.TemporaryDirectory() as folder:
                context = context_of(self.space, self.dataset, Path(folder), trials=len(points), seed=seed)
                return inherited(context, points)

        return self._cache.get_or_make(key, make)


class _Timed:
    """A method that knows how long it was asked and told; on a shared machine, by the processor's clock."""

    def __init__(self, method: SearchMethod) -> None:
        self._method, self.seconds = method, 0.0

    def ask(self, left: BudgetLeft) -> Parameters | None:
        began = time.process_time()
        parameters = self._method.ask(left)
        self.seconds += time.process_time() - began
        return parameters

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        self._method.tell(parameters, outcome)


def _train(dataset: Dataset, space: ArchitectureSpace, parameters: Parameters, seed: int) -> dict[str, Any]:
    """One candidate, from scratch."""
    spec, hyperparameters = space.build(parameters)
    began = time.process_time()
    result = train(
        TrainingJob(dataset, spec, hyperparameters, EXECUTION, Schedule(max_epochs=SCHEDULE.max_epochs, seed=seed))
    )
    seconds = time.process_time() - began
    costs = {
        "parameter_bytes": space.parameter_bytes(parameters),
        "step_seconds": _step_seconds(dataset, space, parameters),
    }
    return {"ne": result.validation.ne, "costs": costs, "seconds": seconds}


def _step_seconds(dataset: Dataset, space: ArchitectureSpace, parameters: Parameters) -> float:
    """Median processor time of a step, of a thread that does all of it."""
    spec, hyperparameters = space.build(parameters)
    model = build_model(spec, dataset.features).train()
    optimizer = build_dense_optimizer(model, hyperparameters)
    loader = BatchLoader(dataset, "train", min(EXECUTION.batch_size, dataset.splits["train"].rows))
    batch = next(islice(loader.batches(), 1))
    durations = []
    with applied(EXECUTION):  # on one thread, or its clock would miss what the others do
        for _ in range(TIMED_STEPS):
            began = time.thread_time()
            train_step(model, optimizer, batch, EXECUTION.precision)
            durations.append(time.thread_time() - began)
    return median(durations[TIMED_STEPS // 4 :])


def _one_shot(searches: _Searches, random: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rank correlations of the super-net's NE with that of the candidates of random search, and between two seeds."""
    pairs: list[list[tuple[float, float]]] = []
    for seed, run in zip(SEEDS, random, strict=True):
        candidates = run["candidates"]
        shared = searches.inherited([one["point"] for one in candidates], seed)
        pairs.append([(ne, one["ne"]) for ne, one in zip(shared, candidates, strict=True)])
    repeated = random[0]["candidates"][:REPEATED]
    again = [searches.trained(one["point"], SEEDS[1])["ne"] for one in repeated]
    ceiling = spearman(np.array([one["ne"] for one in repeated]), np.array(again))
    return {**correlations(pairs), "spearman_own": ceiling}


def compare(runs: Runs, cost: str, candidates: int) -> dict[str, Any]:
    """Areas of all methods, seed by seed, and what each search took."""
    equal = {name: [_first(run, candidates) for run in runs[name]] for name in COMPARED}
    within = {
        rival: [_within(run, _seconds(limit)) for run, limit in zip(runs[longer], runs["dnas"], strict=True)]
        for rival, longer in EQUAL_TIME.items()
    }
    every = [point for of in equal.values() for run in of for point in _points(run, cost)]
    worst = (max(ne for ne, _ in every), max(size for _, size in every))
    base_rate = (1.0, worst[1])

    def ratios(ones: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], below: Point) -> list[float]:
        areas = [[hypervolume(_points(run, cost), below) for run in runs] for runs in (ones, others)]
        return [one / other for one, other in zip(*areas, strict=True)]

    return {
        "ratios": {f"{one}_vs_{other}": ratios(equal[one], equal[other], worst) for one, other in PAIRS},
        "ratios_below_base_rate": {
            f"{one}_vs_{other}": ratios(equal[one], equal[other], base_rate) for one, other in PAIRS
        },
        "ratios_equal_time": {f"dnas_vs_{rival}": ratios(equal["dnas"], of, worst) for rival, of in within.items()},
        "candidates_in_equal_time": {rival: [len(run["candidates"]) for run in of] for rival, of in within.items()},
        "beyond_default": {
            name: [hypervolume(_points(run, cost), _points(run, cost)[0]) for run in of] for name, of in equal.items()
        },
        "best_ne": {name: [min(one["ne"] for one in run["candidates"]) for run in of] for name, of in equal.items()},
        "processor_seconds": {name: [_seconds(run) for run in of] for name, of in equal.items()},
        "processor_seconds_supernet": [run["method_seconds"] for run in equal["dnas"]],
        "reference_ne": worst[0],
        f"reference_{cost}": math.exp(worst[1]),
    }


def _headline(compared: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Means over data sets, costs and seeds."""

    def of_all(kind: str, name: str, data: str = "") -> list[float]:
        return [value for of, one in compared.items() if of.startswith(data) for value in one[kind][name]]

    found: dict[str, Any] = {}
    for one, rival in PAIRS:
        pair, key = f"{one}_vs_{rival}", f"{one}_vs_{rival}_hypervolume"
        ratios = of_all("ratios", pair)
        found |= {key: _rounded(fmean(ratios)), f"{key}_sd": _rounded(stdev(ratios))}
        if one == "dnas":
            ahead = sum(ratio > 1 for ratio in ratios)
            found |= {
                f"{key}_{data}": _rounded(fmean(of_all("ratios", pair, data)))
                for data in dict.fromkeys(of.split()[0] for of in compared)
            }
            found |= {
                f"{key}_below_base_rate": _rounded(fmean(of_all("ratios_below_base_rate", pair))),
                f"dnas_fronts_ahead_of_{rival}": float(ahead),
            }
    for rival in EQUAL_TIME:
        ratios = of_all("ratios_equal_time", f"dnas_vs_{rival}")
        found[f"dnas_vs_{rival}_hypervolume_equal_time"] = _rounded(fmean(ratios))
    for name in COMPARED:
        found[f"front_best_ne_{name}"] = _rounded(fmean(of_all("best_ne", name)))
    return found


def _rounded(value: float) -> float:
    return round(value, 4)


def _points(run: Mapping[str, Any], cost: str) -> list[Point]:
    return [(one["ne"], math.log(one[cost])) for one in run["candidates"]]


def _seconds(run: Mapping[str, Any]) -> float:
    return run["method_seconds"] + sum(one["seconds"] for one in run["candidates"])


def _first(run: Mapping[str, Any], candidates: int) -> dict[str, Any]:
    return {**run, "candidates": run["candidates"][:candidates]}


def _within(run: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The first candidates of a run, as many as fit into the time; at least one."""
    used = accumulate((one["seconds"] for one in run["candidates"]), initial=run["method_seconds"])
    fitting = sum(1 for so_far in islice(used, 1, None) if so_far <= seconds)
    return _first(run, max(1, fitting))


def main() -> None:
    """Measure what is missing of some data sets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--folder", type=Path, help="keeps the data sets")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        figures = measure(arguments.folder or Path(temporary), arguments.data)
    print({name: value for name, value in figures.items() if isinstance(value, float)})


if __name__ == "__main__":
    main()
