"""What reading ahead saves: a reader of known speed beside real training steps, and the stall of a real epoch.

The reader sleeps until a batch has taken a set fraction of a training step, as a disk or a network would, so that
reading needs no processor. Stretches of steps are run in turn: batch and step one after the other, then with the reader
ahead. From the first follow the times to load l and to compute c, and with them what perfect overlap would save:
min(l, c) / (l + c). Times are those of one thread; a stretch's mean step counts, and the median over the stretches.
A third kind of stretch lets the engine choose depth and readers, which may save more than one reader ever could.

    python -m benchmarks.prefetch [--quick]
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from benchmarks.optimizers import ingest_planted
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.data.pipeline import Prefetcher, ReadAhead
from shunter.engine.job import TrainingJob
from shunter.engine.loop.step import applied, build_dense_optimizer, train_step
from shunter.engine.loop.trainer import train
from shunter.models.registry import build_model, model_spec

SEED = 0
SPEC = model_spec(embedding_dim=16, bottom_widths=(512, 256, 64), top_widths=(512, 256))
HEADLINE_FRACTION = 1.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is run.

    Attributes:
        rows: Rows of the generated data.
        batch_size: Samples a step.
        fractions: Time to load over time to compute, each measured.
        stretches: Stretches of each kind and fraction.
        steps: Steps of a stretch.
        epochs: Real epochs, for the stall; their median counts.
    """

    rows: int = 300_000
    batch_size: int = 512
    fractions: tuple[float, ...] = (0.25, 0.43, 1.0, 2.3, 4.0)
    stretches: int = 7
    steps: int = 48
    epochs: int = 3


QUICK = Plan(rows=60_000, fractions=(0.43, 1.0, 2.3), stretches=2, steps=32, epochs=1)


class SlowReader:
    """Hands out batches that lie in memory, each a set time after it was asked for."""

    def __init__(self, batches: list[Batch], seconds: float) -> None:
        self._batches, self._seconds = cycle(batches), seconds

    def __call__(self, _: int) -> Batch:
        """Read the next batch."""
        until = time.perf_counter() + self._seconds
        batch = next(self._batches)
        time.sleep(max(0.0, until - time.perf_counter()))
        return batch


def one_after_the_other(read: SlowReader, step: Callable[[Batch], Any], steps: int) -> tuple[float, float]:
    """Seconds spent reading and seconds spent computing, each the mean of a step."""
    load = compute = 0.0
    for number in range(steps):
        started = time.perf_counter()
        batch = read(number)
        loaded = time.perf_counter()
        step(batch)
        load += loaded - started
        compute += time.perf_counter() - loaded
    return load / steps, compute / steps


def ahead(batches: Iterator[Batch], step: Callable[[Batch], Any], steps: int, reader: ReadAhead | None = None) -> float:
    """Mean seconds of a step that takes its batches from the background; the first ones fill the pipeline."""
    warm_up = steps // 3
    with Prefetcher(batches, depth=2) as ready:
        if reader is not None:
            reader.follow(ready)
        for batch in islice(ready, warm_up):
            step(batch)
        started = time.perf_counter()
        for batch in islice(ready, steps):
            step(batch)
        return (time.perf_counter() - started) / steps


def measure_fraction(fraction: float, batches: list[Batch], step: Callable[[Batch], Any], plan: Plan) -> dict[str, Any]:
    """Run the three kinds of stretches in turn, the reader set by the step's own time just before."""
    measured: dict[str, list[float]] = {"load": [], "compute": [], "ahead": [], "planned": []}
    readers: list[int] = []
    for _ in range(plan.stretches):
        computed = one_after_the_other(SlowReader(batches, 0.0), step, plan.steps // 4)[1]
        reader = SlowReader(batches, fraction * computed)
        load, compute = one_after_the_other(reader, step, plan.steps)
        measured["load"].append(load)
        measured["compute"].append(compute)
        measured["ahead"].append(ahead(map(reader, range(10**9)), step, plan.steps))
        adaptive: ReadAhead[int, Batch] = ReadAhead(reader, depth=2)
        measured["planned"].append(ahead(adaptive.items(range(10**9)), step, plan.steps, adaptive))
        readers.append(adaptive.plan.readers)
    serial = [load + compute for load, compute in zip(measured["load"], measured["compute"], strict=True)]
    formula = [
        min(load, compute) / (load + compute)
        for load, compute in zip(measured["load"], measured["compute"], strict=True)
    ]
    return {
        "fraction": fraction,
        "saving": median(1 - one / both for one, both in zip(measured["ahead"], serial, strict=True)),
        "saving_formula": median(formula),
        "saving_planned": median(1 - one / both for one, both in zip(measured["planned"], serial, strict=True)),
        "readers_planned": median(readers),
        "seconds": measured,
    }


def stall(dataset: Dataset, plan: Plan) -> dict[str, Any]:
    """Share of a real epoch's steps that was spent waiting for batches."""
    shares = []
    for seed in range(plan.epochs):
        execution = Execution(batch_size=plan.batch_size)
        result = train(TrainingJob(dataset, SPEC, Hyperparameters(), execution, Schedule(max_epochs=1, seed=seed)))
        shares.append(result.wait_seconds / (result.wait_seconds + result.compute_seconds))
    return {"shares": shares, "median": median(shares)}


def main() -> None:
    """Measure and publish."""
    quick = report.parse_arguments(__doc__).quick
    plan = QUICK if quick else Plan()
    with TemporaryDirectory() as folder, applied(Execution(threads=1)):
        dataset = ingest_planted(plan.rows, Path(folder))
        loader = BatchLoader(dataset, "train", plan.batch_size, shuffle=True, seed=SEED)
        batches = list(islice(loader.batches(), 16))
        model = build_model(SPEC, dataset.features, seed=SEED).train()
        optimizer = build_dense_optimizer(model, Hyperparameters())

        def step(batch: Batch) -> None:
            train_step(model, optimizer, batch, "fp32")

        step(batches[0])
        rows = [measure_fraction(fraction, batches, step, plan) for fraction in plan.fractions]
        stalled = stall(dataset, plan)
    show(rows, stalled, plan)
    chosen = next(row for row in rows if row["fraction"] == HEADLINE_FRACTION)
    headline = {
        "saving": round(chosen["saving"], 4),
        "saving_formula": round(chosen["saving_formula"], 4),
        "saving_largest_gap": round(max(abs(row["saving"] / row["saving_formula"] - 1) for row in rows), 4),
        "stall_share": round(stalled["median"], 5),
    }
    details = {"plan": asdict(plan), "fractions": rows, "stall": stalled}
    report.publish("prefetch", headline, details, seeds=list(range(plan.epochs)), quick=quick)


def show(rows: list[dict[str, Any]], stalled: dict[str, Any], plan: Plan) -> None:
    """Print the tables."""
    report.table(
        f"Time of a step saved by reading ahead, batch {plan.batch_size}, one thread",
        ("load over compute", "saved", "by the formula", "of it", "engine's plan saves", "readers"),
        [
            (
                f"{row['fraction']:g}",
                f"{row['saving']:.1%}",
                f"{row['saving_formula']:.1%}",
                f"{row['saving'] / row['saving_formula']:.0%}",
                f"{row['saving_planned']:.1%}",
                f"{row['readers_planned']:g}",
            )
            for row in rows
        ],
    )
    print(f"A real epoch of {plan.rows:,} generated Criteo rows waits {stalled['median']:.2%} of its time for batches.")


if __name__ == "__main__":
    main()
