"""Embedding tables in fp16, rounded by chance, against tables in fp32: quality on two logs, cost of a step, bytes.

Ingestion and training are those of `shunter train` with a job's `set`; the choice of a placement, MLflow and the
ensemble, which change no weight of a lone setting, are left out for their time. Settings are those of
`benchmarks.hashing`, set on tables in fp32, and the recipe of DCNv2 on Frappe. Beside both stands the same in fp16
with each update rounded to nearest, which no option gives: it says what the chance is for.

    python -m benchmarks.half_tables [--parts quality steps] [--seeds 0 1 2] [--quick]

Each part of a case replaces what is known of it, so that the table can be made in pieces. What a step costs is
processor time of one thread, which other programs change less than the clock on the wall: of an epoch, its reading and
its validation among it, in turns, the precisions one after the other; the ratio is that of the medians.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args
from unittest import mock

import torch
import yaml
from torch import Tensor

from benchmarks import report
from benchmarks.hashing.row import TRIALS
from benchmarks.quality.files import write_files
from benchmarks.quality.row import recipe

if TYPE_CHECKING:
    from shunter.engine.data.dataset import Dataset
    from shunter.engine.job import ClickJob

NAME = "half_tables"
Part = Literal["quality", "steps"]
Kept = Literal["fp32", "fp16", "nearest"]
TURNS = 3  # of each precision, where steps are timed
QUICK_SEEDS = (0,)


@dataclass(frozen=True)
class Case:
    """A log, and what is trained on it.

    Attributes:
        log: Name of the log.
        family: Family of the model.
        set: Fields of the model and of what it learns with.
        batch_size: Samples a step.
        epochs: At most.
    """

    log: str
    family: str
    set: Mapping[str, Any]
    batch_size: int
    epochs: int


def cases() -> dict[str, Case]:
    """What is trained, by name."""
    found = {
        f"{log}_dlrm": Case(log, "dlrm", TRIALS[log].set, TRIALS[log].batch_size, TRIALS[log].epochs)
        for log in ("frappe", "ml1m")
    }
    written = yaml.safe_load(recipe("frappe", "dcnv2").read_text())
    found["frappe_dcnv2"] = Case("frappe", "dcnv2", written["set"], int(written["batch_sizes"]), written["max_epochs"])
    return found


def main() -> None:
    """Run what is asked for, and publish all that is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one epoch on 20,000 rows")
    parser.add_argument("--parts", nargs="+", choices=get_args(Part), default=get_args(Part))
    parser.add_argument("--cases", nargs="+", choices=[*cases()], default=[*cases()])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    given = parser.parse_args()
    seeds = QUICK_SEEDS if given.quick else given.seeds
    for name in given.cases:
        with ingested(cases()[name], quick=given.quick) as dataset:
            if "quality" in given.parts:
                publish("quality", name, qualities(name, dataset, seeds), quick=given.quick)
            if "steps" in given.parts:
                publish("steps", name, steps(name, dataset), quick=given.quick)


@contextmanager
def ingested(case: Case, *, quick: bool) -> "Iterator[Dataset]":
    """The log, as `shunter train` reads it."""
    with TemporaryDirectory(prefix="shunter-half-") as folder, mock.patch.dict(os.environ, SHUNTER_HOME=folder):
        from shunter.ingestion.request import ingest_request
        from shunter.requests import TrainRequest

        files = write_files(TRIALS[case.log].log, Path(folder), quick=quick)
        yield ingest_request(TrainRequest(**files, model=case.family))[0]


def job_of(name: str, dataset: "Dataset", kept: Kept, seed: int, epochs: int) -> "ClickJob":
    """A training of a case, with its tables kept in a precision."""
    from shunter.engine.config import Execution, Hyperparameters, Schedule
    from shunter.engine.job import TrainingJob
    from shunter.engine.overrides import read_overrides
    from shunter.models.registry import model_spec
    from shunter.requests import TrainRequest

    case = cases()[name]
    asked = {**case.set, "table_precision": "fp32" if kept == "fp32" else "fp16"}
    fixed = read_overrides(case.family, TrainRequest(model=case.family, set=asked).architecture.settings)
    return TrainingJob(
        dataset,
        model_spec(case.family, **fixed.architecture),
        Hyperparameters(**fixed.learning),
        Execution(threads=1, batch_size=case.batch_size),
        Schedule(max_epochs=epochs, patience=fixed.patience or 2, seed=seed),
    )


@contextmanager
def rounded_as(kept: Kept) -> Iterator[None]:
    """Let tables in fp16 be rounded to nearest where that is to be shown: a chance of a half for all."""
    if kept != "nearest":
        yield
        return
    with mock.patch("shunter.models.embeddings.half.chances", _halves):
        yield


def _halves(rows: Sequence[int], dim: int, key: int) -> Tensor:
    return torch.full((len(rows), dim), 0.5)


def qualities(name: str, dataset: "Dataset", seeds: Sequence[int]) -> dict[str, Any]:
    """Quality on the test part of the weights that validation chose, and what the tables take."""
    from shunter.engine.loop.evaluation import evaluate
    from shunter.engine.loop.trainer import train

    found: dict[str, Any] = {}
    for kept in get_args(Kept):
        rows, size = [], dict[str, int]()
        for seed in seeds:
            job = job_of(name, dataset, kept, seed, cases()[name].epochs)
            with rounded_as(kept):
                result = train(job)
            test = evaluate(result.model, dataset, "test", job.execution).metrics
            rows.append({"seed": seed, "ne": test.ne, "auc": test.auc, "epochs": len(result.history)})
            print(f"{name} {kept} seed {seed}: test NE {test.ne:.4f}", flush=True)
            size = vars(result.model.embeddings.held_bytes())
        found[kept] = {"rows": rows, "weight_bytes": size["weights"], "optimizer_bytes": size["optimizer"]}
    return found


def steps(name: str, dataset: "Dataset") -> dict[str, Any]:
    """Processor seconds of a step, with what one epoch reads and validates, by turns."""
    from shunter.engine.loop.trainer import train

    seconds: dict[str, list[float]] = {"fp32": [], "fp16": []}
    for _ in range(TURNS):
        for kept, taken in seconds.items():
            began = time.process_time()
            result = train(job_of(name, dataset, "fp16" if kept == "fp16" else "fp32", 0, 1))
            taken.append((time.process_time() - began) * cases()[name].batch_size / result.samples_seen)
    print(name, seconds, flush=True)
    return seconds


def publish(part: Part, name: str, found: Mapping[str, Any], *, quick: bool) -> None:
    """Write what was found of a case beside all that is known."""
    path = report.result_path(NAME, "quick" if quick else "")
    details = json.loads(path.read_text())["details"] if path.exists() else {}
    details = {**details, part: {**details.get(part, {}), name: found}}
    seeds = {
        row["seed"] for of_case in details.get("quality", {}).values() for row in of_case["fp32"]["rows"]
    }  # steps are timed with the first alone
    report.publish(NAME, headline(details), details, seeds=sorted(seeds), quick=quick)


def headline(details: Mapping[str, Any]) -> dict[str, float]:
    """Means over the seeds, and ratios."""
    figures: dict[str, float] = {}
    for name, found in details.get("quality", {}).items():
        full = {row["seed"]: row["ne"] for row in found["fp32"]["rows"]}
        figures[f"{name}_ne"] = round(fmean(full.values()), 4)
        for kept in ("fp16", "nearest"):
            changes = [row["ne"] / full[row["seed"]] - 1 for row in found[kept]["rows"]]
            figures[f"{name}_{kept}_ne_change"] = round(fmean(changes), 5)
            if len(changes) > 1:
                figures[f"{name}_{kept}_ne_change_std"] = round(stdev(changes), 5)
        figures[f"{name}_bytes_ratio"] = round(
            sum(found["fp16"][part] for part in ("weight_bytes", "optimizer_bytes"))
            / sum(found["fp32"][part] for part in ("weight_bytes", "optimizer_bytes")),
            3,
        )
    for name, seconds in details.get("steps", {}).items():
        figures[f"{name}_processor_milliseconds"] = round(1e3 * median(seconds["fp32"]), 2)
        figures[f"{name}_processor_ratio"] = round(median(seconds["fp16"]) / median(seconds["fp32"]), 3)
    return figures


if __name__ == "__main__":
    main()
