"""What earlier searches save: trials to the result of a cold search, one data set left out at a time.

For each of four click logs (`benchmarks.search.data`) the other three are the past: the cold searches of each, one a
seed. Compared are, by the same trainings:

- `cold`: the tree-structured Parzen estimator from the families' defaults on;
- `random`: the defaults, then independent draws;
- `portfolio`: the same estimator as cold, which first tries what did best on the other data sets;
- `transfer`: the method of that name, which tries the same first and goes on with the past's surrogates.

**What counts**, written down before it was measured. The goal on a data set is the median, over the seeds, of the
lowest validation NE that cold searches reach with all of their trials. A search has reached it with the first trial
whose NE is at most the goal, and its ratio is the number of that trial by the trials of a cold search; one that never
does counts as 1 trial more than all. The ratio of a data set is the median over the seeds, and `warm_start_trial_ratio`
is the third lowest of the four data sets: at most that on three of four. Cold searches are counted in the same way:
three of five reach the median of what they reach, some of them early, so that their own ratio is below 1 and is given
beside. Each seed is that of the method and of the training, so trials of a seed can be compared one by one. The method
itself was made with these four data sets in view: there is none here that its author had not seen.

    python -m benchmarks.search.transfer [--quick] [--data frappe ...] [--methods cold ...] [--folder FOLDER]

Every training is written down in the folder as soon as it is done and never repeated: an interrupted run goes on.
"""

import argparse
import hashlib
import itertools
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from benchmarks import report
from benchmarks.search import data as click_logs
from engine.config import Execution, Schedule
from engine.data.dataset import Dataset
from engine.job import TrainingJob
from engine.loop.trainer import train
from search.context import PastStudy, SearchContext
from search.meta.features import meta_features
from search.meta.neighbours import distance
from search.meta.portfolio import first_points
from search.methods.registry import build_method
from search.methods.samplers import Sampled, tpe_sampler
from search.protocol import BudgetLeft, Outcome, Parameters, SearchMethod
from search.space.settings import SearchSpace
from search.study import storage as study_of
from shunter.errors import TrainingError

# Rows of a training: small enough for a second or so, large enough to tell good settings from bad ones. Open Bandit has
# few clicks, so it needs more.
ROWS = {
    "frappe": {"train": 16_000, "validation": 8_000},
    "ml1m": {"train": 16_000, "validation": 8_000},
    "criteo": {"train": 16_000, "validation": 8_000},
    "open_bandit": {"train": 40_000, "validation": 8_000},
}
FAMILIES = ("dlrm", "dnn", "deepfm", "dcnv2")  # of `auto`, those of which a training of this size takes about a second
EXECUTION = Execution(threads=1, batch_size=512)
EPOCHS = 3
METHODS = {"cold": "tpe", "random": "random", "portfolio": "tpe", "transfer": "transfer"}  # the method behind each
WARM = ("portfolio", "transfer")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is run.

    Attributes:
        data: Names in `ROWS`.
        methods: Names in `METHODS`.
        seeds: Seeds of method and training.
        past_seeds: Seeds of the cold searches that are the past; those of `seeds` among them.
        trials: Trials of a search.
        folder: Folder of the data and of what was trained.
    """

    folder: Path
    data: tuple[str, ...] = tuple(ROWS)
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    past_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    trials: int = 24


class Trainings:
    """Trainings of one data set, each made once and remembered in a file."""

    def __init__(self, name: str, folder: Path) -> None:
        """Read what was trained already."""
        self.dataset = click_logs.load(name, folder / "data", ROWS[name])
        self._file = folder / f"trainings.{name}.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self._known = {line["key"]: line["ne"] for line in map(json.loads, filter(_is_whole, lines))}

    @property
    def space(self) -> SearchSpace:
        """Of `auto`, with `FAMILIES`."""
        space = SearchSpace.for_dataset(self.dataset, "dcnv2")  # the one of them that has options
        return space.model_copy(update={"families": FAMILIES})

    def outcome(self, point: Parameters, seed: int) -> Outcome:
        """Of one point by a training with one seed."""
        key = _key(self.dataset, point, seed)
        if key not in self._known:
            self._known[key] = self._train(point, seed)
            with self._file.open("a") as file:
                file.write(json.dumps({"key": key, "ne": self._known[key], "seed": seed, "point": point}) + "\n")
        ne = self._known[key]
        return Outcome(state="failed") if ne is None else Outcome(state="complete", validation_ne=ne)

    def _train(self, point: Parameters, seed: int) -> float | None:
        spec, hyperparameters = self.space.build(point)
        schedule = Schedule(max_epochs=EPOCHS, patience=EPOCHS, seed=seed)
        try:
            return train(TrainingJob(self.dataset, spec, hyperparameters, EXECUTION, schedule)).validation.ne
        except TrainingError:
            return None


def _is_whole(line: str) -> bool:
    return line.endswith("}")


def _key(dataset: Dataset, point: Parameters, seed: int) -> str:
    text = json.dumps([dataset.fingerprint, point, seed, EPOCHS, EXECUTION.batch_size], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Search:
    """One finished search: its points in their order, with what came of them."""

    trials: tuple[tuple[Parameters, Outcome], ...]

    def best(self) -> list[float]:
        """Lowest validation NE after each trial."""
        lowest, curve = math.inf, []
        for _, outcome in self.trials:
            lowest = min(lowest, math.inf if outcome.validation_ne is None else outcome.validation_ne)
            curve.append(lowest)
        return curve

    def trials_to(self, goal: float) -> int:
        """Trials until the goal; one more than all where it was not reached."""
        return next((number for number, ne in enumerate(self.best(), 1) if ne <= goal), len(self.trials) + 1)


def search(method: str, trainings: Trainings, seed: int, plan: Plan, past: tuple[Any, ...] = ()) -> Search:
    """Ask, train and tell until the trials are used."""
    from optuna import create_study

    study, space = create_study(direction="minimize"), trainings.space
    context = SearchContext(
        space=space,
        study=study,
        dataset=trainings.dataset,
        execution=EXECUTION,
        schedule=Schedule(max_epochs=EPOCHS, seed=seed),
        directory=plan.folder / "state",
        seed=seed,
        trials=plan.trials,
        past=past,
    )
    asked = _method(method, context)
    trials: list[tuple[Parameters, Outcome]] = []
    for done in range(plan.trials):
        point = asked.ask(BudgetLeft(trials=plan.trials - done))
        if point is None:
            break
        outcome = trainings.outcome(point, seed)
        asked.tell(point, outcome)
        trial = study_of.record(study, point)
        space.suggest(trial)
        if outcome.state == "failed":
            trial.set_user_attr(study_of.FAILURE, "The loss went astray.")
        study_of.tell(study, trial, outcome, None)
        trials.append((point, outcome))
    return Search(tuple(trials))


def _method(name: str, context: SearchContext) -> SearchMethod:
    """As the product builds it, but for `portfolio`: it takes over settings of any data, the product of like data."""
    if name == "portfolio":
        return Sampled(context, tpe_sampler, first_points(context.space, context.past))
    return build_method(METHODS[name], context)


@dataclass(frozen=True)
class Study:
    """All searches of a plan, by method, data and seed."""

    plan: Plan
    searches: Mapping[tuple[str, str, int], Search]

    def goal(self, data: str) -> float:
        """Median of what cold searches reach."""
        return median(self.searches["cold", data, seed].best()[-1] for seed in self.plan.past_seeds)

    def trials_to_goal(self, method: str, data: str) -> list[int]:
        """Of each seed."""
        return [self.searches[method, data, seed].trials_to(self.goal(data)) for seed in self.plan.seeds]

    def ratio(self, method: str, data: str) -> float:
        """Median of the trials to the goal, as a share of all."""
        return median(self.trials_to_goal(method, data)) / self.plan.trials


def run(plan: Plan) -> Study:
    """All searches; those of other data sets first, since they are the past of the others."""
    everywhere = {name: Trainings(name, plan.folder) for name in ROWS}
    features = {name: meta_features(one.dataset) for name, one in everywhere.items()}
    searches: dict[tuple[str, str, int], Search] = {}
    for seed, (name, trainings) in itertools.product(plan.past_seeds, everywhere.items()):
        searches["cold", name, seed] = search("cold", trainings, seed, plan)
    for seed, name in itertools.product(plan.seeds, plan.data):
        past = tuple(
            PastStudy(
                name=other,
                trials=searches["cold", other, earlier].trials,
                distance=distance(features[name], features[other]),
            )
            for other, earlier in itertools.product(ROWS, plan.past_seeds)
            if other != name
        )
        for method in plan.methods:
            known = past if method in WARM else ()
            searches[method, name, seed] = search(method, everywhere[name], seed, plan, known)
    return Study(plan, searches)


def measure(plan: Plan) -> dict[str, Any]:
    """Run a plan and judge it.

    Returns:
        `warm_start_trial_ratio` of the method transfer, and the same of the others; then everything behind them.
    """
    study = run(plan)
    ratios = {method: {name: study.ratio(method, name) for name in plan.data} for method in plan.methods}
    third = {method: sorted(by_data.values())[min(2, len(by_data) - 1)] for method, by_data in ratios.items()}
    return {
        "warm_start_trial_ratio": third.get("transfer"),
        **{f"{method}_trial_ratio": ratio for method, ratio in third.items()},
        "ratios": ratios,
        "goals": {name: study.goal(name) for name in plan.data},
        "trials_to_goal": {
            method: {name: study.trials_to_goal(method, name) for name in plan.data} for method in plan.methods
        },
        "curves": {
            method: {name: [study.searches[method, name, seed].best() for seed in plan.seeds] for name in plan.data}
            for method in plan.methods
        },
        "trials": plan.trials,
        "seeds": list(plan.seeds),
    }


def main() -> None:
    """Run what is missing, print and publish."""
    plan, is_quick = parse_arguments()
    figures = measure(plan)
    rows = [
        [f"{name}, goal {figures['goals'][name]:.4f}", method, *_columns(figures, method, name)]
        for name in plan.data
        for method in plan.methods
    ]
    report.table(
        f"Trials to the median result of {plan.trials} cold ones",
        ("data", "method", "of each seed", "ratio", "last NE", "after half"),
        rows,
    )
    headline = {name: value for name, value in figures.items() if name.endswith("_ratio")}
    report.publish("search_transfer", headline, figures, seeds=plan.seeds, quick=is_quick)


def _columns(figures: Mapping[str, Any], method: str, name: str) -> list[str]:
    curves = figures["curves"][method][name]
    return [
        " ".join(map(str, figures["trials_to_goal"][method][name])),
        f"{figures['ratios'][method][name]:.2f}",
        _spread([curve[-1] for curve in curves]),
        _spread([curve[len(curve) // 2 - 1] for curve in curves]),
    ]


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def parse_arguments() -> tuple[Plan, bool]:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one seed, six trials")
    parser.add_argument("--data", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "shunter-search-transfer")
    given = parser.parse_args()
    seeds = tuple(given.seeds or ((0,) if given.quick else (0, 1, 2, 3, 4)))
    plan = Plan(
        folder=given.folder,
        data=tuple(given.data),
        methods=tuple(given.methods),
        seeds=seeds,
        past_seeds=(0,) if given.quick else tuple(sorted({*seeds, 0, 1, 2, 3, 4})),
        trials=6 if given.quick else 24,
    )
    return plan, given.quick


if __name__ == "__main__":
    main()
