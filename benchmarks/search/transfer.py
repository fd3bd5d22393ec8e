"""What earlier searches save: trials to the result of a cold search, one click log left out at a time.

For each of eight click logs (`benchmarks.search.data`) the others are the past, as the product chooses it: cold
searches, one a seed. Logs that were drawn from the same data are never each other's past (`ORIGINS`), for they may
share rows. Compared are, by the same trainings:

- `cold`: the product's default without a past: the tree-structured Parzen estimator from the families' defaults on;
- `random`: the defaults, then independent draws;
- `portfolio`: the same estimator as cold, which first tries the default and what did best on the other logs;
- `product`: what `shunter train` does by default where MLflow knows these searches.

**What counts**, written down before it was measured. The goal on a log is the median, over the seeds, of the lowest
validation NE that cold searches reach with all of their trials. A search has reached it with the first trial whose NE
is at most the goal. A log is kept within half if the median over the seeds of the number of that trial is at most half
of the trials; `click_logs_within_half` is the number of such logs, 6 of 8 the aim. The other methods are counted alike,
cold searches too, some of which get there early. A search that has not reached the goal by half of its trials ends
there and counts as later. Each seed is that of the method and of the training. The method was set on `SEEN`
alone, by these counts; on the others it was run once, when it was done (an earlier version was begun on some of them,
and its figures were not read; their cold searches, and some of their best points, were), and
`click_logs_within_half_unseen` counts these. Of five seeds, three decide on a log.

Open Bandit, which was among the logs before, is left out: its validation part holds too few clicks to choose by, as the
product itself says where it searches such a log.

    python -m benchmarks.search.transfer [--quick] [--data frappe ...] [--methods cold ...] [--folder FOLDER]

Every training is written down in the folder as soon as it is done and never repeated: an interrupted run goes on. With
`--data` and `--methods cold` only these searches are made, and nothing is published.
"""

import argparse
import itertools
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from benchmarks import report
from benchmarks.search.data import ORIGINS
from benchmarks.search.trainings import EPOCHS, EXECUTION, Trainings
from shunter.engine.config import Schedule
from shunter.extensions.meta_learning.features import distance, meta_features
from shunter.extensions.meta_learning.past import MOST_OF_ONE_NAME, MOST_STUDIES, in_rounds
from shunter.extensions.meta_learning.portfolio import first_points
from shunter.requests import SearchRequest
from shunter.search.context import PastStudy, SearchContext
from shunter.search.methods.registry import build_method
from shunter.search.methods.samplers import Sampled, tpe_sampler
from shunter.search.protocol import BudgetLeft, Outcome, Parameters, SearchMethod
from shunter.search.study import storage as study_of

LOGS = ("frappe", "ml1m", "criteo", "games", "ml1m_ids", "criteo_first", "synthetic", "planted")
SEEN = ("frappe", "ml1m", "criteo")  # while the method was made
WITHOUT_ENOUGH_CLICKS = "open_bandit"
SEEDS = tuple(range(5))  # twenty would be better: 640 trainings are cold searches as it is
PRODUCT = SearchRequest().search_method  # what a command has that names no method
METHODS = {"cold": PRODUCT, "random": "random", "portfolio": PRODUCT, "product": PRODUCT}  # the method behind each
WARM = ("portfolio", "product")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is run.

    Attributes:
        data: Names in `LOGS`.
        methods: Names in `METHODS`.
        seeds: Seeds of method and training, of the past too.
        trials: Trials of a cold search; the others end at half of them.
        folder: Folder of the data and of what was trained.
    """

    folder: Path
    data: tuple[str, ...] = LOGS
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[int, ...] = SEEDS
    trials: int = 16

    @property
    def half(self) -> int:
        """Trials within which the goal is to be reached."""
        return self.trials // 2


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


def search(
    method: str,
    trainings: Trainings,
    seed: int,
    plan: Plan,
    *,
    past: tuple[PastStudy, ...] = (),
    goal: float = -math.inf,
) -> Search:
    """Ask, train and tell until the trials are used; one that has a goal ends there, or at half of the trials."""
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
    for done in range(plan.trials if math.isinf(goal) else plan.half):
        point = asked.ask(BudgetLeft(trials=plan.trials - done))
        if point is None:
            break
        outcome = trainings.outcome(point, seed)
        trial = study_of.record(study, point)
        space.suggest(trial)
        if outcome.state == "failed":
            trial.set_user_attr(study_of.FAILURE, "The loss went astray.")
        study_of.tell(study, trial, outcome, None)
        asked.tell(point, outcome)
        trials.append((point, outcome))
        if outcome.validation_ne is not None and outcome.validation_ne <= goal:
            break
    return Search(tuple(trials))


def _method(name: str, context: SearchContext) -> SearchMethod:
    """As the product builds it, but for `portfolio`: it takes over settings of any data, the product of like data."""
    if name == "portfolio":
        first = [context.space.defaults()[0], *first_points(context.space, context.past)]
        return Sampled(context, tpe_sampler, list({repr(point): point for point in first}.values()))
    return build_method(METHODS[name], context)


@dataclass(frozen=True)
class Study:
    """All searches of a plan, by method, data and seed."""

    plan: Plan
    searches: Mapping[tuple[str, str, int], Search]

    def goal(self, data: str) -> float:
        """Median of what cold searches reach."""
        return median(self.searches["cold", data, seed].best()[-1] for seed in self.plan.seeds)

    def trials_to_goal(self, method: str, data: str) -> list[int]:
        """Of each seed; one more than half of the trials stands for all that is later."""
        goal, later = self.goal(data), self.plan.half + 1
        return [min(self.searches[method, data, seed].trials_to(goal), later) for seed in self.plan.seeds]

    def ratio(self, method: str, data: str) -> float:
        """Median of the trials to the goal, as a share of all."""
        return median(self.trials_to_goal(method, data)) / self.plan.trials

    def within_half(self, method: str, logs: Sequence[str]) -> int:
        """Of how many logs the goal is reached with half of the trials."""
        return sum(self.ratio(method, name) * self.plan.trials <= self.plan.half for name in logs)


def run(plan: Plan) -> Study:
    """All searches; the cold ones first, since they are the past of the others."""
    searches: dict[tuple[str, str, int], Search] = {}
    everywhere = {name: Trainings(name, plan.folder) for name in (LOGS if set(plan.methods) - {"cold"} else plan.data)}
    for name, seed in itertools.product(everywhere, plan.seeds):
        searches["cold", name, seed] = search("cold", everywhere[name], seed, plan)
    study = Study(plan, searches)
    features = cache(lambda name: meta_features(everywhere[name].dataset))
    for name in plan.data:
        goal, others = study.goal(name), [method for method in plan.methods if method != "cold"]
        past = past_of(name, study, features) if set(others) & set(WARM) else ()
        for method, seed in itertools.product(others, plan.seeds):
            known = past if method in WARM else ()
            searches[method, name, seed] = search(method, everywhere[name], seed, plan, past=known, goal=goal)
    return study


def past_of(name: str, study: Study, features: Any) -> tuple[PastStudy, ...]:
    """The cold searches of logs of another origin, as many and the same as the product would read from MLflow."""
    own, found = ORIGINS.get(name, name), []
    for other in (one for one in LOGS if ORIGINS.get(one, one) != own):
        far, noise = distance(features(name), features(other)), noise_of(study, other)
        found += [
            PastStudy(name=other, trials=study.searches["cold", other, seed].trials, distance=far, noise=noise)
            for seed in study.plan.seeds
        ]
    found.sort(key=lambda past: past.distance)
    names = [past.name for past in found]
    chosen = [place for place in in_rounds(names) if names[:place].count(names[place]) < MOST_OF_ONE_NAME]
    return tuple(found[place] for place in sorted(chosen[:MOST_STUDIES]))


def noise_of(study: Study, name: str) -> float | None:
    """Standard deviation of NE from seed to seed, as the product fits it from the seeds of an ensemble's setting.

    Of the setting that all cold searches have in common and that does best on average: one of the defaults.
    """
    known: dict[str, list[float]] = {}
    for seed in study.plan.seeds:
        for point, outcome in study.searches["cold", name, seed].trials:
            if outcome.validation_ne is not None:
                known.setdefault(repr(point), []).append(outcome.validation_ne)
    repeated = [values for values in known.values() if len(values) == len(study.plan.seeds) > 1]
    return stdev(min(repeated, key=fmean)) if repeated else None


def measure(plan: Plan) -> dict[str, Any]:
    """Run a plan and judge it.

    Returns:
        On how many logs the goal is reached within half of the trials, by method; then everything behind it.
    """
    study = run(plan)
    unseen = [name for name in plan.data if name not in SEEN]
    counts = {method: study.within_half(method, plan.data) for method in plan.methods}
    left_out = Trainings(WITHOUT_ENOUGH_CLICKS, plan.folder)
    return {
        **({"click_logs_within_half": float(counts["product"])} if "product" in counts else {}),
        **{f"click_logs_within_half_{method}": float(count) for method, count in counts.items() if method != "product"},
        **(
            {"click_logs_within_half_unseen": float(study.within_half("product", unseen))}
            if "product" in counts
            else {}
        ),
        "ratios": {method: {name: study.ratio(method, name) for name in plan.data} for method in plan.methods},
        "goals": {name: study.goal(name) for name in plan.data},
        "trials_to_goal": {
            method: {name: study.trials_to_goal(method, name) for name in plan.data} for method in plan.methods
        },
        "curves": {
            method: {name: [study.searches[method, name, seed].best() for seed in plan.seeds] for name in plan.data}
            for method in plan.methods
        },
        "noise": {name: noise_of(study, name) for name in plan.data},
        "left_out": {WITHOUT_ENOUGH_CLICKS: left_out.too_few},
        "trials": plan.trials,
        "seeds": list(plan.seeds),
    }


def main() -> None:
    """Run what is missing, print, and publish what is whole."""
    plan, is_quick = parse_arguments()
    figures = measure(plan)
    rows = [
        [f"{name}, goal {figures['goals'][name]:.4f}", method, *_columns(figures, method, name)]
        for name in plan.data
        for method in plan.methods
    ]
    report.table(
        f"Trials to the median result of {plan.trials} cold ones; {plan.half + 1} is later than half",
        ("data", "method", "of each seed", "ratio", "last NE"),
        rows,
    )
    headline = {name: value for name, value in figures.items() if isinstance(value, float)}
    if is_quick or (plan.data == LOGS and set(plan.methods) == set(METHODS)):
        report.publish("search_transfer", headline, figures, seeds=plan.seeds, quick=is_quick)


def _columns(figures: Mapping[str, Any], method: str, name: str) -> list[str]:
    last = [curve[-1] for curve in figures["curves"][method][name]]
    return [
        " ".join(map(str, figures["trials_to_goal"][method][name])),
        f"{figures['ratios'][method][name]:.2f}",
        f"{fmean(last):.4f}" + (f" ± {stdev(last):.4f}" if len(last) > 1 else ""),
    ]


def parse_arguments() -> tuple[Plan, bool]:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one seed, six trials")
    parser.add_argument("--data", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "shunter-search-transfer")
    given = parser.parse_args()
    plan = Plan(
        folder=given.folder,
        data=tuple(given.data),
        methods=tuple(given.methods),
        seeds=tuple(given.seeds or ((0,) if given.quick else SEEDS)),
    )
    return (replace(plan, trials=6) if given.quick else plan), given.quick


if __name__ == "__main__":
    main()
