"""Shampoo against Adam and Adagrad: steps to a loss, and what its roots cost a step.

Steps to a loss: a DLRM is trained by each optimiser of its dense part with every pair of learning rates (dense part,
embeddings) of a grid, as many pairs for each; the pair with the lowest validation loss is trained anew from three other
seeds. Counted are the steps to the lowest loss that all of these runs reach. Cost of a step: a Criteo-shaped DLRM, by
the number of steps from one computation of the roots to the next. Times are processor seconds of one thread, which
other programs on the machine change less than they change the wall clock.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks import report
from shunter.engine.config import Execution
from shunter.engine.data.batch import Batch, make_batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.step import applied, seeded, train_step
from shunter.extensions.shampoo import Shampoo
from shunter.models.embeddings.learning import EmbeddingLearning
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

FRAPPE = Path(__file__).resolve().parents[2] / "shared" / "data" / "frappe_x1_train_valid.npz"
ROOT_EVERY_STEPS = 10
MAX_BLOCK_SIZE = 512
GRID_SEED = 100
BATCH_SIZE = 512
Parameters = Iterator[torch.nn.Parameter]


@dataclass(frozen=True)
class Contestant:
    """An optimiser of the dense part, and the learning rates that it is tried with."""

    name: str
    rates: tuple[float, ...]
    build: Callable[[Parameters, float], torch.optim.Optimizer]


@dataclass(frozen=True)
class Plan:
    """How much is run.

    Attributes:
        rows: Rows of the planted data.
        steps: Steps of each training.
        steps_between_evaluations: Resolution of the steps to a loss.
        rates: Number of dense learning rates in the grid, at most four.
        embedding_rates: The other axis of the grid.
        seeds: Seeds of the trainings that count.
        overhead_batch: Samples a step where the cost of a step is measured.
        bottom_widths: Widths of the model's bottom layers there.
        top_widths: Widths of the model's top layers there.
        root_frequencies: Steps from one computation of the roots to the next, each measured.
    """

    rows: int = 260_000
    steps: int = 400
    steps_between_evaluations: int = 10
    rates: int = 4
    embedding_rates: tuple[float, ...] = (0.06, 0.2)
    seeds: tuple[int, ...] = (0, 1, 2)
    overhead_batch: int = 2048
    bottom_widths: tuple[int, ...] = (512, 256, 64)
    top_widths: tuple[int, ...] = (512, 256)
    root_frequencies: tuple[int, ...] = (1, 10, 50, 100)


QUICK = Plan(
    rows=40_000,
    steps=80,
    rates=2,
    embedding_rates=(0.06,),
    overhead_batch=256,
    bottom_widths=(128, 64),
    top_widths=(128, 64),
    root_frequencies=(1, 10, 50),
)


@dataclass(frozen=True)
class Curve:
    """One training.

    Attributes:
        dense_rate: Learning rate of the contestant.
        embedding_rate: Learning rate of the embeddings' row-wise Adagrad.
        seed: Seed of weights and order.
        steps: Steps after which the validation loss was taken.
        losses: Mean validation log loss, one for each of `steps`.
        cpu_seconds_per_step: Mean processor time of a training step, reading its batch left out.
    """

    dense_rate: float
    embedding_rate: float
    seed: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    cpu_seconds_per_step: float

    def steps_to(self, target: float) -> int:
        """First step at which the loss was at most `target`, which it must have been."""
        return next(step for step, loss in zip(self.steps, self.losses, strict=True) if loss <= target)


def build_shampoo(
    parameters: Parameters,
    learning_rate: float,
    root_every_steps: int = ROOT_EVERY_STEPS,
    start_step: int | None = None,
) -> Shampoo:
    """Shampoo as it is measured here: Adam lends the step length, and the roots are computed in turns."""
    return Shampoo(
        parameters,
        lr=learning_rate,
        root_every_steps=root_every_steps,
        start_step=start_step,
        max_block_size=MAX_BLOCK_SIZE,
    )


CONTESTANTS = (
    Contestant("adam", (3e-3, 1e-2, 1e-3, 3e-2), lambda parameters, lr: torch.optim.Adam(parameters, lr, fused=True)),
    Contestant(
        "adagrad", (1e-2, 3e-2, 3e-3, 1e-1), lambda parameters, lr: torch.optim.Adagrad(parameters, lr, fused=True)
    ),
    Contestant("shampoo", (3e-3, 1e-2, 1e-3, 3e-2), build_shampoo),
)


def main() -> None:
    """Run, print and publish."""
    quick = report.parse_arguments(__doc__).quick
    plan = QUICK if quick else Plan()
    with TemporaryDirectory() as folder, applied(Execution(threads=1)):
        datasets = {"planted": ingest_planted(plan.rows, Path(folder))}
        if FRAPPE.exists() and not quick:
            datasets["frappe"] = ingest_frappe(Path(folder))
        races = {name: race(dataset, plan) for name, dataset in datasets.items()}
        overhead = measure_overhead(plan)
    headline = summarise(races, overhead)
    results = {"plan": asdict(plan), "steps_to_loss": races, "step_cost": overhead}
    report.publish("optimizers", headline, results, seeds=list(plan.seeds), quick=quick)


def ingest_planted(rows: int, folder: Path) -> Dataset:
    """Generated clicks in Criteo's shape."""
    from shunter.ingestion.cache import ingest_source
    from shunter.ingestion.sources.open import open_source

    source = open_source(f"synthetic:{rows}", None, None, folder)
    return ingest_source(source, folder / "cache", seed=0, max_bad_share=0.0)[0]


def ingest_frappe(folder: Path) -> Dataset:
    """The training part of Frappe: ten categorical fields, one positive to two drawn negatives."""
    import pandas as pd
    import yaml

    from shunter.ingestion.cache import ingest_source
    from shunter.ingestion.sources.open import open_source

    arrays = np.load(FRAPPE)
    ids = arrays["train_x"]
    fields = [f"field{position}" for position in range(ids.shape[1])]
    table = pd.DataFrame(ids, columns=pd.Index(fields)).assign(label=arrays["train_y"])
    table.to_parquet(folder / "frappe.parquet")
    schema = {"label": {"column": "label"}, "categorical": [{"column": field} for field in fields]}
    (folder / "frappe.yaml").write_text(yaml.safe_dump(schema))
    source = open_source(str(folder / "frappe.parquet"), None, str(folder / "frappe.yaml"), folder)
    return ingest_source(source, folder / "cache", seed=0, max_bad_share=0.0)[0]


def race(dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """Steps that each contestant needs to one validation loss, its learning rates tuned at equal effort."""
    grids = {contestant.name: tune(dataset, contestant, plan) for contestant in CONTESTANTS}
    runs = {contestant.name: final(dataset, contestant, grids[contestant.name], plan) for contestant in CONTESTANTS}
    target = max(min(curve.losses) for curves in runs.values() for curve in curves)
    results = {name: describe(grids[name], runs[name], target) for name in runs}
    report.table(
        f"{dataset.name}, {dataset.rows:,} rows: steps to a validation log loss of {target:.4f}",
        ("optimizer", "dense rate", "embedding rate", "lowest loss", "steps by seed", "mean", "processor ms a step"),
        [
            (
                name,
                f"{result['dense_rate']:g}",
                f"{result['embedding_rate']:g}",
                f"{fmean(result['lowest_logloss']):.4f}",
                " ".join(map(str, result["steps_to_target"])),
                f"{result['mean_steps_to_target']:.0f}",
                f"{1e3 * result['cpu_seconds_per_step']:.2f}",
            )
            for name, result in results.items()
        ],
    )
    return {"rows": dataset.rows, "target_logloss": target, "contestants": results}


def tune(dataset: Dataset, contestant: Contestant, plan: Plan) -> list[Curve]:
    """Train with each pair of learning rates of the grid."""
    pairs = product(contestant.rates[: plan.rates], plan.embedding_rates)
    return [train(dataset, contestant, rates, GRID_SEED, plan) for rates in pairs]


def final(dataset: Dataset, contestant: Contestant, grid: list[Curve], plan: Plan) -> list[Curve]:
    """Train with the best pair of the grid from new seeds."""
    best = min(grid, key=lambda curve: min(curve.losses))
    return [train(dataset, contestant, (best.dense_rate, best.embedding_rate), seed, plan) for seed in plan.seeds]


def describe(grid: list[Curve], curves: list[Curve], target: float) -> dict[str, Any]:
    """What one contestant reached, when, and at what cost a step."""
    steps = [curve.steps_to(target) for curve in curves]
    return {
        "dense_rate": curves[0].dense_rate,
        "embedding_rate": curves[0].embedding_rate,
        "lowest_logloss": [min(curve.losses) for curve in curves],
        "steps_to_target": steps,
        "mean_steps_to_target": fmean(steps),
        "cpu_seconds_per_step": fmean(curve.cpu_seconds_per_step for curve in curves),
        "grid": [asdict(curve) for curve in grid],
        "curves": [asdict(curve) for curve in curves],
    }


def train(dataset: Dataset, contestant: Contestant, rates: tuple[float, float], seed: int, plan: Plan) -> Curve:
    """Train a small DLRM and take its validation loss on the way."""
    steps, losses, seconds = [], [], 0.0
    with seeded(seed, torch.device("cpu")):
        model = build_model(
            model_spec(), dataset.features, seed=seed, embedding_learning=EmbeddingLearning(learning_rate=rates[1])
        ).train()
        optimizer = contestant.build(model.parameters(), rates[0])
        for step, batch in enumerate(endless(dataset, seed, plan.steps), start=1):
            started = time.process_time()
            train_step(model, optimizer, batch, "fp32")
            seconds += time.process_time() - started
            if step % plan.steps_between_evaluations == 0:
                steps.append(step)
                losses.append(evaluate(model, dataset, "validation", Execution()).metrics.logloss)
    return Curve(*rates, seed, tuple(steps), tuple(losses), seconds / plan.steps)


def endless(dataset: Dataset, seed: int, count: int) -> Iterator[Batch]:
    """So many batches, epoch after epoch."""
    loader = BatchLoader(dataset, "train", BATCH_SIZE, shuffle=True, seed=seed)
    for epoch in range(-(-count // len(loader))):
        for batch, _ in zip(loader.batches(epoch=epoch), range(count - epoch * len(loader)), strict=False):
            yield batch


def measure_overhead(plan: Plan) -> dict[str, Any]:
    """Processor time of a training step with Shampoo, over that with Adam, by root frequency."""
    batches = random_batches(plan)
    adam, costs = [], {}
    for every in plan.root_frequencies:
        # Adam is measured anew beside each, so that a change of the machine's clock reaches both.
        adam.append(step_seconds(plan, batches, lambda parameters: torch.optim.Adam(parameters, 1e-3, fused=True), 10))
        costs[every] = step_seconds(plan, batches, lambda p, every=every: build_shampoo(p, 1e-3, every, 1), every)
    base = median(adam)
    # A step is what each step costs, and 1/frequency of all roots.
    design = np.array([[1.0, 1.0 / every] for every in costs])
    (fixed, roots), *_ = np.linalg.lstsq(design, np.array(list(costs.values())), rcond=None)
    report.table(
        f"Criteo-shaped DLRM, batch {plan.overhead_batch}, one thread; Adam takes {1e3 * base:.1f} ms a step",
        ("roots every", "processor ms a step", "over Adam"),
        [(str(every), f"{1e3 * seconds:.1f}", f"{seconds / base - 1:.1%}") for every, seconds in costs.items()],
    )
    print(f"Fitted: {1e3 * fixed:.1f} ms a step without roots, {1e3 * roots:.0f} ms to compute all roots once.")
    return {
        "batch_size": plan.overhead_batch,
        "adam_cpu_seconds": adam,
        "shampoo_cpu_seconds": costs,
        "overhead": {every: seconds / base - 1 for every, seconds in costs.items()},
        "fitted_step_seconds": float(fixed),
        "fitted_root_seconds": float(roots),
    }


def random_batches(plan: Plan) -> list[tuple[Features, Batch]]:
    """A few batches in Criteo's shape; small tables, since the embeddings are the same for all optimisers."""
    features = Features(
        dense=tuple(f"i{position}" for position in range(13)),
        categorical=tuple(CategoricalFeature(name=f"c{position}", rows=1000) for position in range(26)),
    )
    random = np.random.default_rng(0)
    return [
        (
            features,
            make_batch(
                features,
                dense=random.normal(size=(plan.overhead_batch, 13)).astype(np.float32),
                categorical=random.integers(0, 1000, (plan.overhead_batch, 26), dtype=np.int32),
                labels=random.integers(0, 2, plan.overhead_batch).astype(np.float32),
            ),
        )
        for _ in range(4)
    ]


def step_seconds(
    plan: Plan,
    batches: Sequence[tuple[Features, Batch]],
    build: Callable[[Parameters], torch.optim.Optimizer],
    cycle_steps: int,
) -> float:
    """Mean processor time of a step over whole cycles of root computations, after one cycle to warm up."""
    spec = model_spec(bottom_widths=plan.bottom_widths, top_widths=plan.top_widths)
    model = build_model(spec, batches[0][0]).train()
    optimizer = build(model.parameters())
    measured_steps = cycle_steps * max(1, 10 // cycle_steps)
    started = 0.0
    for step in range(cycle_steps + measured_steps):
        if step == cycle_steps:
            started = time.process_time()
        train_step(model, optimizer, batches[step % len(batches)][1], "fp32")
    return (time.process_time() - started) / measured_steps


def summarise(races: dict[str, dict[str, Any]], overhead: dict[str, Any]) -> dict[str, float]:
    """The headline: geometric means over the data sets of Shampoo's steps and time, over those of its better rival."""
    steps, seconds = {}, {}
    for name, result in races.items():
        rows = result["contestants"]
        steps[name] = over_better_rival({rival: row["mean_steps_to_target"] for rival, row in rows.items()})
        seconds[name] = over_better_rival(
            {rival: row["mean_steps_to_target"] * row["cpu_seconds_per_step"] for rival, row in rows.items()}
        )
    return {
        "shampoo_steps_ratio": geometric_mean(steps.values()),
        **{f"shampoo_steps_ratio_{name}": ratio for name, ratio in steps.items()},
        "shampoo_cpu_time_ratio": geometric_mean(seconds.values()),
        "shampoo_overhead": overhead["overhead"][ROOT_EVERY_STEPS],
        "shampoo_overhead_every_50": overhead["overhead"][50],
    }


def over_better_rival(values: dict[str, float]) -> float:
    """Shampoo's figure over the smallest of the others'."""
    return values["shampoo"] / min(value for name, value in values.items() if name != "shampoo")


if __name__ == "__main__":
    main()
