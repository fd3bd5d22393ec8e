"""Every way of searching on real trainings: best validation NE against trials and against seconds.

Searched is the product's own space of architectures for the size of the data, on samples of Frappe and of MovieLens-1M
as clicks: 40,000 rows to learn from in at most two passes, 10,000 to validate on. Each search is the product's own,
with its early stopping, its record in a database and its runs in MLflow, and tries 24 architectures, all of which are
trained from scratch; a training that was stopped early counts as one. The seed is that of the method and of all
trainings, so that an architecture comes to the same NE whichever method proposes it.

`random`, `tpe`, `dnas` and `rl` begin from nothing. `transfer` knows one earlier search, that of `tpe` with the same
seed on the other data set, as it finds it in MLflow.

Time is given as wall clock, which the machine's other work stretches, and as seconds of the processor in this process,
on one thread, which it hardly does. Both hold all that a method does, the training of a super-net included.

    python -m benchmarks.search.methods [--quick] [--data frappe ml1m] [--methods tpe ...] [--seeds 0 1 2]
        [--folder FOLDER]

Each search is written down as it is done, and an interrupted run goes on where it stopped.
"""

import argparse
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.report import Stopwatch
from benchmarks.search.cache import Cache
from benchmarks.search.data import load
from shunter.engine.config import Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.extensions.meta_learning.past import begin_from_past, format_past
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.hardware.types import Placement
from shunter.requests import SearchSpaceName, TrainRequest
from shunter.search.job import SearchJob
from shunter.search.result import TuneResult
from shunter.search.search import search
from shunter.search.study.loop import Progress
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import open_store

DATA = ("frappe", "ml1m")
OTHER = {"frappe": "ml1m", "ml1m": "frappe"}
METHODS = ("random", "tpe", "dnas", "rl", "transfer")
TAUGHT_BY = "tpe"  # whose search on the other data the method below begins from
WARM = ("transfer",)
RATES = Hyperparameters(dense_learning_rate=2e-3, embedding_learning_rate=0.1)
PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=1_024)
SEEDS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is run.

    Attributes:
        data: Names in `DATA`.
        methods: Names in `METHODS`.
        seeds: Seeds of methods and trainings.
        trials: Trials of each search.
        rows: Rows of each part of the data.
        folder: Folder of the data and the searches' own files, so that `transfer` finds its past there; None is a
            folder for the time being, and searches that an earlier run had written down may be made again for it.
        is_quick: Whether the sizes are reduced.
    """

    data: tuple[str, ...] = DATA
    methods: tuple[str, ...] = METHODS
    seeds: tuple[int, ...] = SEEDS
    trials: int = 24
    rows: dict[str, int] = field(default_factory=lambda: {"train": 40_000, "validation": 10_000, "test": 0})
    folder: Path | None = None
    is_quick: bool = False

    @classmethod
    def quick(cls) -> "Plan":
        """Less than a minute: one seed, few rows and trials, and no super-net."""
        return cls(
            methods=("random", "tpe"), seeds=(0,), trials=4, rows={"train": 4_096, "validation": 1_000}, is_quick=True
        )

    @property
    def file(self) -> str:
        """Name of the cache."""
        return "search-methods.quick" if self.is_quick else "search-methods"


def measure(plan: Plan) -> dict[str, Any]:
    """Search what is not written down yet, and bring all of it together.

    Returns:
        Headline `default_ne_<data>`, that of the default, `best_ne_<method>_<data>`, the mean over the seeds of the
        lowest validation NE, `best_ne_<method>`, the mean over the data sets too, and its standard deviation over the
        seeds; `details` of each method and data set.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with TemporaryDirectory() as temporary:
        searches = _Searches(plan, plan.folder or Path(temporary))
        for seed, method, data in product(plan.seeds, plan.methods, plan.data):  # whole comparisons, seed by seed
            found.setdefault((data, method), []).append(searches.once(data, method, seed))
    details = {data: {method: _figures(found[data, method]) for method in plan.methods} for data in plan.data}
    headline: dict[str, Any] = {}
    for method in plan.methods:
        best = np.array([[one["best_ne"][-1] for one in found[data, method]] for data in plan.data])
        headline |= {
            f"best_ne_{method}_{data}": _rounded(row.mean()) for data, row in zip(plan.data, best, strict=True)
        }
        headline |= {f"best_ne_{method}": _rounded(best.mean()), f"best_ne_{method}_sd": _rounded(_sd(best.mean(0)))}
    for data in plan.data:  # which random search tries first, as all methods do
        first = [one["best_ne"][0] for one in found.get((data, "random"), [])]
        headline |= {f"default_ne_{data}": _rounded(float(np.mean(first)))} if first else {}
    for data in plan.data:
        _print(data, details[data], plan)
    return {**headline, "details": details, "seeds": list(plan.seeds), "trials": plan.trials, "rows": plan.rows}


class _Searches:
    """The searches of a plan, each made once.

    Args:
        plan: How much is run.
        folder: Folder of the data and of the searches' own files.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan, self._folder, self._cache = plan, folder, Cache.of(plan.file)
        self._is_warmed_up = False

    def once(self, data: str, method: str, seed: int) -> dict[str, Any]:
        """What is written down of a search, or else the search itself."""
        plan = self._plan
        key = {"data": data, "method": method, "seed": seed, "trials": plan.trials, "rows": plan.rows}
        return self._cache.get_or_make(key, lambda: self._run(data, method, seed))

    def _run(self, data: str, method: str, seed: int) -> dict[str, Any]:
        dataset = load(data, self._folder / "data", self._plan.rows)
        home = self._home(data, method, seed)
        shutil.rmtree(home, ignore_errors=True)  # of an attempt that was cut short: its time is not known
        if method in WARM:
            teacher = self._home(OTHER[data], TAUGHT_BY, seed)
            if not teacher.exists():  # its figures were written down by an earlier run, which was interrupted
                self._run(OTHER[data], TAUGHT_BY, seed)
            shutil.copytree(teacher, home)
        else:
            shutil.copytree(self._empty_store(), home)
        if not self._is_warmed_up:  # what a process loads when it first searches is no method's time
            with TemporaryDirectory() as elsewhere:
                shutil.copytree(self._empty_store(), Path(elsewhere), dirs_exist_ok=True)
                run_search(dataset, "random", seed, 1, Path(elsewhere))
            self._is_warmed_up = True
        return run_search(dataset, method, seed, self._plan.trials, home)

    def _empty_store(self) -> Path:
        """A home with a tracking store without runs, whose tables take seconds to create."""
        home = self._folder / "empty"
        if not home.exists():
            with _at_home(home):
                open_store()
        return home

    def _home(self, data: str, method: str, seed: int) -> Path:
        return self._folder / f"{method}-{data}-{seed}"


def run_search(dataset: Dataset, method: str, seed: int, trials: int, home: Path) -> dict[str, Any]:
    """One search by the product.

    Args:
        dataset: The data.
        method: Name in `METHODS`.
        seed: Seed of method and trainings.
        trials: Trials of the search.
        home: Folder of its study and of the tracking store.

    Returns:
        `best_ne`, `wall_seconds` and `processor_seconds` after each trial, the best architecture, and the past it
        began from.
    """
    request = TrainRequest(
        data=dataset.name,
        trials=trials,
        max_epochs=2,
        seed=seed,
        search_method=method,
        search_space=SearchSpaceName.ARCHITECTURE,
        cold_start=method not in WARM,
    )
    space = ArchitectureSpace.for_dataset(dataset, hyperparameters=RATES)
    curve: dict[str, list[float]] = {"best_ne": [], "wall_seconds": [], "processor_seconds": []}
    with _at_home(home):
        parent = start_run_tree(request, dataset, kind="tune")
        watch = Stopwatch()

        def on_trial(progress: Progress) -> None:
            curve["best_ne"].append(np.inf if progress.best_loss is None else progress.best_loss)
            for name, seconds in watch.read().items():
                curve[name].append(seconds)

        directory = home / f"study-{dataset.name}"
        result = search(
            SearchJob(
                dataset=dataset,
                request=request,
                placement=PLACEMENT,
                directory=directory,
                parent_run_id=parent,
                space=space,
            ),
            on_trial=on_trial,
        )
        past = begin_from_past(dataset, directory, parent)  # as the search kept it
    return {**curve, **_outcome(result), "past": format_past(past)}


def _outcome(result: TuneResult) -> dict[str, Any]:
    best = result.best
    return {
        "complete_trials": result.complete_trials,
        "pruned_trials": result.pruned_trials,
        "failed_trials": result.failed_trials,
        "best": best.spec.to_dict(),
        "best_parameter_bytes": best.costs["parameter_bytes"],
        "best_step_seconds": best.costs["step_seconds"],
        "training_seconds": sum(setting.seconds for setting in result.settings),
    }


@contextmanager
def _at_home(home: Path) -> Iterator[None]:
    """With all that the product keeps in a folder of its own."""
    before = os.environ.get("SHUNTER_HOME")
    os.environ["SHUNTER_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SHUNTER_HOME"]
        else:
            os.environ["SHUNTER_HOME"] = before


def _figures(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one method on one data set: each seed as it was measured, and the means."""
    best = np.array([run["best_ne"] for run in runs])
    return {
        "best_ne": {"mean": float(best[:, -1].mean()), "sd": _sd(best[:, -1])},
        "best_ne_by_trial": best.mean(0).tolist(),
        "wall_seconds": float(np.mean([run["wall_seconds"][-1] for run in runs])),
        "processor_seconds": float(np.mean([run["processor_seconds"][-1] for run in runs])),
        "runs": list(runs),
    }


def _sd(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _rounded(value: float) -> float:
    return round(float(value), 5)


def _print(data: str, figures: dict[str, Any], plan: Plan) -> None:
    middle = plan.trials // 2
    report.table(
        f"{data}: lowest validation NE of {plan.trials} architectures, mean of {len(plan.seeds)} seeds",
        ("method", "best NE", "sd", f"after {middle}", "wall s", "processor s"),
        [
            (
                method,
                f"{one['best_ne']['mean']:.4f}",
                f"{one['best_ne']['sd']:.4f}",
                f"{one['best_ne_by_trial'][middle - 1]:.4f}",
                f"{one['wall_seconds']:.0f}",
                f"{one['processor_seconds']:.0f}",
            )
            for method, one in sorted(figures.items(), key=lambda pair: pair[1]["best_ne"]["mean"])
        ],
    )


def main() -> None:
    """Search what is missing, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="few rows, trials and methods, one seed")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--folder", type=Path, help="keeps the data and the searches' own files")
    arguments = parser.parse_args()
    if arguments.quick:
        measure(Plan.quick())
    else:
        measure(
            Plan(
                data=tuple(arguments.data),
                methods=tuple(arguments.methods),
                seeds=tuple(arguments.seeds),
                folder=arguments.folder,
            )
        )


if __name__ == "__main__":
    main()
