"""Plans trained by processes of this machine: predicted and measured steps, before and after the others taught.

On each table set some plans are drawn at random and trained. What their steps took calibrates the simulator together
with what was drawn of the sets before by as many processes, as `shunter train` keeps it for `shunter plan`. Then the
plan that is found, TorchRec's, the usual ones and further random ones are predicted before they are trained in turn: no
prediction of a plan uses that plan. The last two sets are held out: no plan of them had a part in the constants of the
calibration.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

from pandas import Series

from benchmarks import report
from benchmarks.optimizers import ingest_planted
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.job import Checkpointing, TrainingJob
from shunter.engine.profiling.profiles import machine_profiles
from shunter.engine.results import TrainingFigures
from shunter.extensions.distributed.executors.process_group import ProcessGroup
from shunter.extensions.distributed.executors.process_group import machine_of as memory_of
from shunter.extensions.distributed.plan_request import DevicesRequest, PlanRequest
from shunter.extensions.distributed.planning.calibration import UNCALIBRATED, ExecutedPlan, typical_step_seconds
from shunter.extensions.distributed.planning.demand import demand_of
from shunter.extensions.distributed.planning.machine import machine_of
from shunter.extensions.distributed.planning.options import all_row_wise, data_parallel, manual_plan, options_of
from shunter.extensions.distributed.planning.report import TORCHREC as TORCHREC_PLANNER
from shunter.extensions.distributed.planning.report import choose_cautiously, simulated_step, step_model
from shunter.extensions.distributed.planning.search import Search
from shunter.extensions.distributed.planning.step import StepModel
from shunter.extensions.distributed.planning.torchrec_plan import torchrec_choices
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.extensions.distributed.training import Sharding
from shunter.hardware.types import HardwareProfile, Placement
from shunter.models.registry import model_spec

TORCHREC, FOUND = "TorchRec's", "found"
THREADS, ROWS, EPOCHS = 2, 50_000, 5
SEARCH_SECONDS = 2.0
WIDE, WIDE_BATCH, WIDE_EPOCHS, TURNS = 128, 4096, 4, 3  # beside one process


@dataclass(frozen=True)
class TableSet:
    """Tables that plans are made for.

    Attributes:
        name: Its name.
        data: Log that they are of: in Criteo's shape, with small tables alone, or mixed, with large ones and bags too.
        width: Numbers of a row.
        batch_size: Samples of a step of all processes.
        processes: How many train.
        teachers: Plans drawn at random that calibrate.
        drawn: Plans drawn at random that are predicted.
        held_out: Whether none of its plans had a part in the constants of the calibration.
    """

    name: str
    data: str
    width: int
    batch_size: int
    processes: int
    teachers: int
    drawn: int
    held_out: bool = False


SETS = (
    TableSet("mixed tables, 2 processes", "mixed", 32, 2048, 2, 8, 3),
    TableSet("mixed tables, width 64, 2 processes", "mixed", 64, 4096, 2, 3, 2),
    TableSet("Criteo's shape, width 64, 2 processes", "criteo", 64, 4096, 2, 2, 2),
    TableSet("mixed tables, 4 processes", "mixed", 32, 2048, 4, 5, 3),
    TableSet("mixed tables, width 128, 2 processes", "mixed", 128, 1024, 2, 2, 3, held_out=True),
    TableSet("Criteo's shape, width 32, 4 processes", "criteo", 32, 2048, 4, 2, 3, held_out=True),
)
QUICK_SETS = (TableSet("mixed tables, 2 processes", "mixed", 32, 2048, 2, 2, 0),)
MIXED = {"a": 4, "b": 30, "c": 200, "d": 1_000, "e": 3_000, "f": 8_000, "g": 20_000, "h": 20_000, "i": 60_000}
BAGS = {"j": (500, 8), "k": (5_000, 12), "l": (150_000, 6), "m": (300_000, 4)}  # values, and ids of a row


def executed(*, quick: bool) -> list[dict[str, Any]]:
    """Every plan of every set: what was predicted for a step, and what it took."""
    profiles = machine_profiles()
    lines: list[dict[str, Any]] = []
    kept: dict[int, list[ExecutedPlan]] = {}
    with TemporaryDirectory() as name:
        rows = ROWS // 3 if quick else ROWS
        logs = {"mixed": ingest_mixed(rows, Path(name)), "criteo": ingest_planted(rows, Path(name))}
        for tables in QUICK_SETS if quick else SETS:
            lines += _of_set(tables, logs[tables.data], profiles, kept)
            report.publish("plans_executed", {}, {"executed": lines}, seeds=[0], quick=quick, partial=True)
    report.result_path("plans_executed", "partial").unlink(missing_ok=True)
    return lines


def against_one_process(*, quick: bool) -> dict[str, Any]:
    """The step of two processes by the plan that is found, beside that of one process with two threads.

    Rows are wide, bags long and batches large, so that both are kept busy by reading and writing rows. They train in
    turn, and both keep checkpoints, as the command does; the ratio is the median of the turns.
    """
    profiles = machine_profiles()
    spec = model_spec(embedding_dim=WIDE, bottom_widths=(64,), top_widths=(128, 64))
    with TemporaryDirectory() as name:
        dataset = ingest_mixed(ROWS // 3 if quick else ROWS, Path(name))
        demand, machine = demand_of(dataset, spec), machine_of(DevicesRequest(devices=2), profiles)
        model = step_model(demand, machine, PlanRequest(batch_size=WIDE_BATCH))
        rival = torchrec_choices(model.costs)
        choices = Search(model).run(SEARCH_SECONDS, {} if rival is None else {TORCHREC: rival}).choices
        execution = replace(Execution(), threads=THREADS, batch_size=WIDE_BATCH)
        schedule = Schedule(max_epochs=WIDE_EPOCHS, patience=WIDE_EPOCHS)
        job = TrainingJob(dataset, spec, Hyperparameters(), execution, schedule)
        place = Placement(accelerator="cpu", threads=THREADS, precision="fp32", batch_size=WIDE_BATCH)
        turns: list[tuple[float, float]] = []
        for turn in range(1 if quick else TURNS):
            kept = Checkpointing(Path(name) / f"alone{turn}")
            alone = typical_step_seconds(InProcessExecutor(place).run(job, checkpointing=kept).history)
            assert alone is not None, "it has trained for whole epochs"
            turns.append((alone, measured_step(job, choices, profiles[0], 2)))
    return {
        "one_process_seconds": median(alone for alone, _ in turns),
        "two_processes_seconds": median(together for _, together in turns),
        "ratio": median(together / alone for alone, together in turns),
        "turns": turns,
    }


def figures(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The headline of executed plans, of those that calibrated nothing."""
    tested = [one for one in lines if not one["calibrates"]]
    if not tested:
        return {}
    report.table(
        "executed plans, milliseconds",
        ("tables", "plan", "before", "predicted", "measured", ""),
        [
            (
                one["set"],
                one["name"],
                *(f"{1e3 * one[key]:.1f}" for key in ("uncalibrated", "predicted", "measured")),
                "calibrates" if one["calibrates"] else "by default" if one.get("by_default") else "",
            )
            for one in lines
        ],
    )
    by_set: dict[str, list[dict[str, Any]]] = {}
    for one in tested:
        by_set.setdefault(one["set"], []).append(one)
    ranks = {name: _rank(ones, "predicted") for name, ones in by_set.items()}
    held_out = [one for one in tested if one.get("held_out")]
    ratios, by_default = [], []
    for ones in by_set.values():
        measured = {one["name"]: one["measured"] for one in ones}
        if TORCHREC in measured:
            ratios.append(measured[FOUND] / measured[TORCHREC])
            by_default += [one["measured"] / measured[TORCHREC] for one in ones if one.get("by_default")]
    of_held_out = {}
    if held_out:
        of_held_out = {
            "rank_correlation_held_out": fmean(ranks[name] for name in {one["set"] for one in held_out}),
            "prediction_error_held_out": fmean(abs(one["predicted"] / one["measured"] - 1) for one in held_out),
        }
    return {
        "executed_plans": len(lines),
        "tested_plans": len(tested),
        "rank_correlation": fmean(ranks.values()),
        "rank_correlation_uncalibrated": fmean(_rank(by_set[name], "uncalibrated") for name in ranks),
        "prediction_error": fmean(abs(one["predicted"] / one["measured"] - 1) for one in tested),
        "prediction_error_uncalibrated": fmean(abs(one["uncalibrated"] / one["measured"] - 1) for one in tested),
        "measured_ratio_to_torchrec_planner": geometric_mean(ratios) if ratios else float("nan"),
        "default_ratio_to_torchrec_planner": geometric_mean(by_default) if by_default else float("nan"),
        "measured_sets": len(ratios),
        **of_held_out,
    }


def _rank(lines: Sequence[dict[str, Any]], key: str) -> float:
    """Spearman's correlation of predicted and measured steps."""
    predicted, measured = Series([one[key] for one in lines]), Series([one["measured"] for one in lines])
    return float(predicted.corr(measured, method="spearman"))


def ingest_mixed(rows: int, folder: Path) -> Dataset:
    """A log of small and large fields of one value by Zipf's law, and of bags; its labels are chance."""
    import numpy as np
    import pandas as pd
    import yaml

    from shunter.ingestion.cache import ingest_source
    from shunter.ingestion.sources.open import open_source

    chance = np.random.default_rng(0)

    def values(count: int, size: int) -> np.ndarray:
        """Half by a skewed law, half evenly, so that large fields have many rows."""
        skewed = (count ** chance.random(size)).astype(np.int64) - 1
        return np.where(chance.random(size) < 0.5, skewed, chance.integers(0, count, size))

    columns: dict[str, Any] = {name: values(count, rows).astype(str) for name, count in MIXED.items()}
    for name, (count, each) in BAGS.items():
        columns[name] = list(values(count, rows * each).reshape(rows, each).astype(str))
    table = pd.DataFrame(columns).assign(number=chance.random(rows), label=chance.integers(0, 2, rows))
    table.to_parquet(folder / "mixed.parquet")
    schema = {
        "label": {"column": "label"},
        "numeric": ["number"],
        "categorical": list(MIXED),
        "multi_valued": [{"column": name} for name in BAGS],
        "vocabulary": {"min_count": 1},
    }
    (folder / "mixed.yaml").write_text(yaml.safe_dump(schema))
    source = open_source(str(folder / "mixed.parquet"), None, str(folder / "mixed.yaml"), folder)
    return ingest_source(source, folder / "cache", seed=0, max_bad_share=0.0)[0]


def _of_set(
    tables: TableSet, dataset: Dataset, profiles: list[HardwareProfile], kept: dict[int, list[ExecutedPlan]]
) -> list[dict[str, Any]]:
    spec = model_spec(embedding_dim=tables.width, bottom_widths=(64,), top_widths=(128, 64))
    demand = demand_of(dataset, spec)
    machine = machine_of(DevicesRequest(devices=tables.processes), profiles)
    request = PlanRequest(batch_size=tables.batch_size)
    model = step_model(demand, machine, request)
    lines: list[dict[str, Any]] = []

    def train(name: str, choices: Sequence[Choice], at: StepModel, *, calibrates: bool) -> ExecutedPlan:
        step = simulated_step(at, choices)
        job = TrainingJob(
            dataset,
            spec,
            Hyperparameters(),
            replace(Execution(), threads=THREADS, batch_size=tables.batch_size),
            Schedule(max_epochs=EPOCHS, patience=EPOCHS),
        )
        seconds = measured_step(job, choices, profiles[0], tables.processes)
        plan = ExecutedPlan(key=f"{tables.name}, {name}", measured_seconds=seconds, step=step)
        lines.append(
            {
                "set": tables.name,
                "name": name,
                "calibrates": calibrates,
                "held_out": tables.held_out,
                "uncalibrated": step.seconds(UNCALIBRATED),
                "predicted": step.predicted_seconds,
                "measured": seconds,
                "kinds": [choice.kind for choice in choices],
            }
        )
        return plan

    drawn = {f"drawn {number}": one for number, one in enumerate(_drawn(model, tables.teachers + tables.drawn))}
    teachers = [drawn.pop(f"drawn {number}") for number in range(tables.teachers)]
    known = kept.setdefault(tables.processes, [])
    before = step_model(demand, machine, request, known)
    known += [train(f"drawn {number}", one, before, calibrates=True) for number, one in enumerate(teachers)]
    taught = step_model(demand, machine, request, known)
    rival = torchrec_choices(taught.costs)
    begin = {} if rival is None else {TORCHREC_PLANNER: rival}
    found = Search(taught).run(SEARCH_SECONDS, begin)
    # What `shunter train --processes N` would train by.
    by_default = FOUND
    if rival is not None and TORCHREC_PLANNER in found.beginnings:
        taken, _ = choose_cautiously(found, rival, taught.calibration.error)
        by_default = TORCHREC if taken.choices == tuple(rival) else FOUND
    begin = {} if rival is None else {TORCHREC: rival}
    plans: dict[str, Sequence[Choice]] = {
        FOUND: found.choices,
        **begin,
        "by hand": manual_plan(demand, machine),
        "data parallel": data_parallel(demand),
        "all by row": all_row_wise(demand, machine),
        **drawn,
    }
    for name, choices in plans.items():
        train(name, choices, taught, calibrates=False)
        lines[-1]["by_default"] = name == by_default
    return lines


def _drawn(model: StepModel, count: int) -> list[list[Choice]]:
    """Plans of which each has more of some kind than of others, so that they differ."""
    chance = random.Random(0)
    options = [options_of(table, model.machine, "exact") for table in model.costs.demand.tables]
    plans = []
    for _ in range(count):
        leaning = {kind: chance.random() ** 2 for kind in ("data_parallel", "table_wise", "row_wise")}
        plans.append([chance.choices(one, [leaning[choice.kind] for choice in one])[0] for one in options])
    return plans


def measured_step(
    job: TrainingJob[Any, Any, Any], choices: Sequence[Choice], profile: HardwareProfile, processes: int
) -> float:
    """Seconds of a step, waiting for batches included, by processes of this machine."""
    seconds = typical_step_seconds(trained(job, choices, profile, processes).history)
    assert seconds is not None, "it has trained for whole epochs"
    return seconds


def trained(
    job: TrainingJob[Any, Any, Any],
    choices: Sequence[Choice],
    profile: HardwareProfile,
    processes: int,
    *,
    shares_memory: bool = True,
) -> TrainingFigures[Any, Any]:
    """Train by processes of this machine, each table where it was chosen to be."""
    placement = Placement(
        accelerator="cpu",
        threads=job.execution.threads,
        precision="fp32",
        batch_size=job.execution.batch_size,
        processes=processes,
    )
    sharding = Sharding(machine=memory_of(profile, processes), given=tuple(choices), shares_memory=shares_memory)
    return ProcessGroup(placement, sharding).figures(job)
