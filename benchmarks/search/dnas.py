"""Fronts of differentiable architecture search against those of random search, by equally many trained candidates.

Each method proposes architectures of the same space, and each is trained from scratch in the same way. The front is of
validation NE against bytes of the parameters, which are counted, and against the processor's time for a step, which is
measured on one thread and not by the clock on the wall, for other work runs beside it. A front's figure is the area
that it dominates (hypervolume) over NE and the logarithm of the cost, below the worst NE and the highest cost of any
candidate of either method on that data; a second figure takes a prediction of the base rate, NE 1, instead of the
worst. Random search trains no super-net; with as much of the processor's time as the other took in all, super-net
included, it trains more candidates: the ratio at equal time is told beside the other.
"""

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.search.cache import Cache
from benchmarks.search.data import load
from benchmarks.search.replay import replay
from benchmarks.search.table import RATES
from engine.config import Execution, Schedule
from engine.data.dataset import Dataset
from engine.data.loader import BatchLoader
from engine.job import TrainingJob
from engine.loop.step import build_dense_optimizer, train_step
from engine.loop.trainer import train
from engine.pareto import hypervolume
from models.registry import build_model
from search.context import SearchContext
from search.methods.registry import build_method
from search.protocol import BudgetLeft, Cost, Outcome, Parameters, SearchMethod
from search.space.architecture import ArchitectureSpace

ROWS = {"train": 20_000, "validation": 10_000, "test": 0}
DATA = ("frappe", "ml1m")
SEEDS = (0, 1, 2)
CANDIDATES = 16
COSTS: tuple[Cost, ...] = ("parameter_bytes", "step_seconds")
# Candidates of each method, by those that are compared: of random search so many that equal time is reached.
METHODS = {"random": 3, "dnas": 1}
SCHEDULE = Schedule(max_epochs=4)
EXECUTION = Execution(threads=1)
TIMED_STEPS = 20
RATIOS = ("ratios", "ratios_below_base_rate", "ratios_equal_time")


def measure(folder: Path, *, quick: bool = False) -> dict[str, Any]:
    """Every method, cost, data set and seed; what is in the cache is not measured again.

    Args:
        folder: Folder where the data sets are kept.
        quick: One seed, fewer candidates and rows.

    Returns:
        `dnas_vs_random_hypervolume`, the mean over data sets, costs and seeds of the ratio of the areas, and its
        variants; the same of each by itself with its spread; and all candidates.
    """
    seeds, candidates = (SEEDS[:1], 4) if quick else (SEEDS, CANDIDATES)
    rows = {"train": 2_000, "validation": 1_000, "test": 0} if quick else ROWS
    cache = Cache(Path(tempfile.mkdtemp()) / "quick.jsonl") if quick else Cache.of("search_dnas")
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in DATA:
        dataset = load(name, folder, rows)
        for cost in COSTS:
            runs[f"{name} {cost}"] = {
                method: [
                    _search(method, dataset, cost, candidates=times * candidates, seed=seed, cache=cache)
                    for seed in seeds
                ]
                for method, times in METHODS.items()
            }
    compared = {of: _compare(by_method, of.split()[1], candidates) for of, by_method in runs.items()}
    ratios = {name: [ratio for one in compared.values() for ratio in one[name]] for name in RATIOS}
    return {
        "dnas_vs_random_hypervolume": round(fmean(ratios["ratios"]), 4),
        "dnas_vs_random_hypervolume_sd": round(stdev(ratios["ratios"]), 4) if len(ratios["ratios"]) > 1 else None,
        "dnas_vs_random_hypervolume_below_base_rate": round(fmean(ratios["ratios_below_base_rate"]), 4),
        "dnas_vs_random_hypervolume_equal_time": round(fmean(ratios["ratios_equal_time"]), 4),
        "candidates": candidates,
        "compared": compared,
        "runs": runs,
    }


def _search(method: str, dataset: Dataset, cost: Cost, *, candidates: int, seed: int, cache: Cache) -> dict[str, Any]:
    """One search: its candidates, and the seconds that the method itself took, most of them for the super-net."""
    of = {"data": dataset.fingerprint, "candidates": candidates, "seed": seed}
    # Random search proposes the same points whatever the cost.
    key = {"method": method, **({} if method == "random" else {"cost": cost}), **of}
    space = ArchitectureSpace.for_dataset(dataset, hyperparameters=RATES)

    def make() -> dict[str, Any]:
        timed: list[_Timed] = []

        def build(context: SearchContext) -> SearchMethod:
            timed.append(_Timed(build_method(method, context)))
            return timed[0]

        def look_up(parameters: Parameters) -> Outcome:
            found = cache.get_or_make(
                {"data": dataset.fingerprint, "point": parameters, "seed": seed},
                lambda: _train(dataset, space, parameters, seed),
            )
            return Outcome(state="complete", validation_ne=found["ne"], costs=found["costs"], seconds=found["seconds"])

        played = replay(build, space, look_up, dataset=dataset, trials=candidates, seed=seed, cost=cost)
        return {
            "method_seconds": timed[0].seconds,
            "candidates": [
                {"point": one.parameters, "ne": one.outcome.validation_ne, **one.outcome.costs}
                | {"seconds": one.outcome.seconds}
                for one in played
            ],
        }

    return cache.get_or_make(key, make)


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
    for _ in range(TIMED_STEPS):
        began = time.thread_time()
        train_step(model, optimizer, batch, EXECUTION.precision)
        durations.append(time.thread_time() - began)
    return median(durations[TIMED_STEPS // 4 :])


def _compare(by_method: Mapping[str, Sequence[Mapping[str, Any]]], cost: str, candidates: int) -> dict[str, Any]:
    """Areas of both methods, seed by seed, and what each search took."""
    dnas, longer = by_method["dnas"], by_method["random"]
    random = [{**run, "candidates": run["candidates"][:candidates]} for run in longer]
    within = [_within(run, _seconds(limit)) for run, limit in zip(longer, dnas, strict=True)]
    every = [point for run in (*dnas, *random) for point in _points(run, cost)]
    worst = (max(ne for ne, _ in every), max(size for _, size in every))

    def ratios(others: Sequence[Mapping[str, Any]], reference: tuple[float, float]) -> list[float]:
        areas = [[hypervolume(_points(run, cost), reference) for run in runs] for runs in (dnas, others)]
        return [one / other for one, other in zip(*areas, strict=True)]

    found = ratios(random, worst)
    return {
        "ratios": found,
        "ratio_mean": fmean(found),
        "ratio_sd": stdev(found) if len(found) > 1 else None,
        "ratios_below_base_rate": ratios(random, (1.0, worst[1])),
        "ratios_equal_time": ratios(within, worst),
        "random_candidates_in_equal_time": [len(run["candidates"]) for run in within],
        "reference_ne": worst[0],
        f"reference_{cost}": math.exp(worst[1]),
        **{
            f"best_ne_{method}": [min(one["ne"] for one in run["candidates"]) for run in runs]
            for method, runs in (("dnas", dnas), ("random", random))
        },
        **{
            f"processor_seconds_{method}": [_seconds(run) for run in runs]
            for method, runs in (("dnas", dnas), ("random", random))
        },
        "processor_seconds_supernet": [run["method_seconds"] for run in dnas],
    }


def _points(run: Mapping[str, Any], cost: str) -> list[tuple[float, float]]:
    return [(one["ne"], math.log(one[cost])) for one in run["candidates"]]


def _seconds(run: Mapping[str, Any]) -> float:
    return run["method_seconds"] + sum(one["seconds"] for one in run["candidates"])


def _within(run: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The first candidates of a run, as many as fit into the time; at least one."""
    used = accumulate((one["seconds"] for one in run["candidates"]), initial=run["method_seconds"])
    fitting = sum(1 for so_far in islice(used, 1, None) if so_far <= seconds)
    return {**run, "candidates": run["candidates"][: max(1, fitting)]}
