"""Quality of every model family on two click logs, beside what is published and the gates that a release must pass.

Frappe_x1 is BARS' split of Frappe (96,203 logged uses of apps, two negatives drawn for each; Baltrunas et al., 2015):
its training part is learned from; reported is the validation part, after the epoch with the highest AUC there, which is
when BARS stops. BARS then reports the test part, which is not in the file: our figures are those of the part that chose
the epoch, so they are flattered a little, and compare with the published ones as neighbours and not as equals.

Recipe of BARS: Adam with 1e-3, batch 4,096, embeddings of 10 numbers with L2, MLP 400-400-400 with batch normalisation
and dropout. Ours differs where the engine does: embeddings of 16 numbers, for FBGEMM takes multiples of 4, learned by
row-wise Adagrad with weight decay on the rows of a batch, and 2e-3 for Adam; the layers run in bfloat16.

MovieLens-1M as clicks follows AutoInt (Song et al., CIKM 2019), without the time (`data.write_ml1m`): reported
is the test part, once, by the weights of the epoch with the lowest log loss on the validation part.

    python -m benchmarks.quality [--quick] [--data frappe ml1m] [--models dlrm ...] [--seeds 0 1 2] [--threads 2]

Each training is written down as soon as it is done, in a file of its own, and is not repeated while its recipe stays as
it is: an interrupted run goes on where it stopped, and several processes can share the work.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from benchmarks.quality.data import write_frappe, write_ml1m
from benchmarks.quality.recipes import STUDIES, Recipe
from engine.config import Execution, Hyperparameters, Schedule
from engine.data.dataset import Dataset
from models.registry import model_spec

SEEDS = (0, 1, 2)
BATCH_SIZE = 4096
WRITERS = {"frappe": write_frappe, "ml1m": write_ml1m}
FAMILIES = tuple(dict.fromkeys(family for study in STUDIES.values() for family in study.recipes))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is run.

    Attributes:
        data: Names in `STUDIES`.
        models: Families; one without a recipe for a click log is left out there.
        seeds: Seeds of weights, dropout and order.
        threads: Threads of each training.
        is_quick: One epoch on a tenth of the data.
    """

    data: tuple[str, ...] = tuple(STUDIES)
    models: tuple[str, ...] = FAMILIES
    seeds: tuple[int, ...] = SEEDS
    threads: int = 1
    is_quick: bool = False

    @property
    def rows(self) -> int | None:
        """Of the training part; None is all."""
        return 20_000 if self.is_quick else None


def main() -> None:
    """Train what is missing, judge all that is there, print and publish."""
    plan = parse_arguments()
    for data in plan.data:
        train_missing(data, plan)
    runs = known_runs(plan)
    headline = {name: value for data in STUDIES for name, value in judge(data, runs).items()}
    seeds = sorted({run["seed"] for run in runs})
    report.publish("quality", headline, {"batch_size": BATCH_SIZE, "runs": runs}, seeds=seeds, quick=plan.is_quick)


def parse_arguments() -> Plan:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one epoch on 20,000 rows, one seed")
    parser.add_argument("--data", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--models", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    return Plan(
        data=tuple(arguments.data),
        models=tuple(arguments.models),
        seeds=tuple(arguments.seeds or (SEEDS[:1] if arguments.quick else SEEDS)),
        threads=arguments.threads,
        is_quick=arguments.quick,
    )


def train_missing(data: str, plan: Plan) -> None:
    """Every training of the plan that is not written down yet, seed by seed."""
    recipes = STUDIES[data].recipes
    todo = [(seed, model) for seed in plan.seeds for model in plan.models if model in recipes]
    with TemporaryDirectory() as folder:
        dataset: Dataset | None = None
        for seed, model in todo:
            if any((run["data"], run["model"], run["seed"]) == (data, model, seed) for run in known_runs(plan)):
                continue
            dataset = dataset or WRITERS[data](Path(folder), plan.rows)
            run = {"data": data, "model": model, "seed": seed, **train_one(dataset, data, model, seed, plan)}
            file = f"quality.{data}-{model}-{seed}{'.quick' if plan.is_quick else ''}.partial.json"
            (report.RESULTS / file).write_text(json.dumps(run))


def known_runs(plan: Plan) -> list[dict[str, Any]]:
    """The trainings that are written down, published or not, and whose recipe is still the same; by data and family."""
    quick = ".quick" if plan.is_quick else ""
    published = report.RESULTS / f"quality{quick}.json"
    runs = json.loads(published.read_text())["details"]["runs"] if published.exists() else []
    files = [
        path for path in report.RESULTS.glob("quality.*-*.partial.json") if (".quick." in path.name) == bool(quick)
    ]
    runs += [json.loads(path.read_text()) for path in files]
    latest = {(run["data"], run["model"], run["seed"]): run for run in runs if is_current(run)}
    return sorted(latest.values(), key=lambda run: (list(STUDIES).index(run["data"]), run["model"], run["seed"]))


def is_current(run: dict[str, Any]) -> bool:
    """Whether a training would be the same today; options that have come since count as their defaults."""
    recipe = STUDIES[run["data"]].recipes.get(run["model"]) if run.get("data") in STUDIES else None
    return recipe is not None and (
        model_spec(**run["spec"]) == recipe.spec and Hyperparameters(**run["hyperparameters"]) == recipe.hyperparameters
    )


def train_one(dataset: Dataset, data: str, model: str, seed: int, plan: Plan) -> dict[str, Any]:
    """Train one model, and its quality on the part that is reported."""
    from engine.job import TrainingJob
    from engine.loop.evaluation import evaluate
    from engine.loop.trainer import train

    study = STUDIES[data]
    recipe: Recipe = study.recipes[model]
    execution = Execution(threads=plan.threads, precision="bf16", batch_size=BATCH_SIZE)
    schedule = Schedule(max_epochs=1 if plan.is_quick else study.max_epochs, patience=study.patience, seed=seed)
    result = train(TrainingJob(dataset, recipe.spec, recipe.hyperparameters, execution, schedule))
    if study.reported == "test":
        best = evaluate(result.model, dataset, "test", execution).metrics
    else:
        best = max((one.validation for one in result.history), key=lambda one: one.auc)
    print(f"{data} {model} seed {seed}: AUC {best.auc:.4f}, log loss {best.logloss:.4f}", flush=True)
    return {
        "auc": best.auc,
        "logloss": best.logloss,
        "ne": best.ne,
        "train_seconds": result.train_seconds,
        "threads": plan.threads,
        "parameters": sum(parameter.numel() for parameter in result.model.layers.parameters()),
        "epochs": [
            {"auc": one.validation.auc, "logloss": one.validation.logloss, "train_logloss": one.train_logloss}
            for one in result.history
        ],
        "spec": recipe.spec.to_dict(),
        "hyperparameters": recipe.hyperparameters.to_dict(),
        "schedule": {"max_epochs": schedule.max_epochs, "patience": schedule.patience, "rows": plan.rows},
    }


def judge(data: str, runs: Sequence[dict[str, Any]]) -> dict[str, float | bool]:
    """Mean and spread of each family over its seeds, against gates and published figures; prints them as a table.

    Returns:
        `<data>_<model>_auc`, its standard deviation and the log loss; `frappe_gates_met` where no gate is missed.
    """
    study, headline = STUDIES[data], dict[str, float | bool]()
    rows, is_met = [], True
    for model, recipe in study.recipes.items():
        own = [run for run in runs if (run["data"], run["model"]) == (data, model)]
        if not own:
            continue
        auc, logloss = (round(fmean(run[name] for run in own), 4) for name in ("auc", "logloss"))
        spread = round(stdev(run["auc"] for run in own), 5) if len(own) > 1 else 0.0
        gate = headline.get("frappe_dcnv2_auc") if (data, model) == ("frappe", "dhen") else recipe.least_auc
        is_met &= gate is None or auc >= gate
        headline |= {f"{data}_{model}_auc": auc, f"{data}_{model}_auc_std": spread, f"{data}_{model}_logloss": logloss}
        rows.append(
            (
                model,
                f"{auc:.4f}",
                f"{spread:.4f}",
                f"{logloss:.4f}",
                f"{recipe.published_auc:.4f}" if recipe.published_auc else "-",
                "-" if gate is None else f"{gate:.4f} {'met' if auc >= gate else 'MISSED'}",
                f"{own[0]['parameters']:,}",
                str(len(own)),
            )
        )
    if rows:
        columns = ("model", "AUC", "sd", "log loss", "BARS, test", "gate", "weights", "seeds")
        report.table(f"{study.title}, mean of the seeds", columns, rows)
    gates = {f"{data}_gates_met": is_met} if any(recipe.least_auc for recipe in study.recipes.values()) and rows else {}
    return headline | gates
