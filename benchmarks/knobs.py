"""Which knobs of the server matter: each turned alone about one setting, in turn, each time in a process of its own.

The model and the data are those of `benchmarks.train_step`'s kind: 13 dense and 26 categorical columns, DLRM, here on a
synthetic log. A value's figure is the median over the rounds of its median step time, over that of the base setting in
the same round; `spread` of a knob is the slowest value over the fastest. `repeat` turns nothing: its spread is what
noise alone makes, so a knob below it does not matter.

Turned are intra-operator threads, inter-operator threads (which torch takes once a process), threads that read batches,
depth of the prefetch, precision, and batch size, this one by samples a second. Readers and depth are held fixed here;
in a training they follow the measured times.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import measure, publish, table
from shunter.models.registry import model_spec

BASE: dict[str, Any] = {
    "threads": 1,
    "interop_threads": 1,
    "readers": 1,
    "prefetch_depth": 2,
    "precision": "fp32",
    "batch_size": 512,
}
ROWS = 60_000
STEPS, QUICK_STEPS = 60, 15
ROUNDS, QUICK_ROUNDS = 5, 1
SEED = 0


def values() -> dict[str, list[Any]]:
    """What each knob is turned to, beside its base."""
    cores = len(os.sched_getaffinity(0))
    return {
        "repeat": [BASE["threads"]],
        "threads": sorted({1, *(1 << power for power in range(1, 8) if 1 << power < cores), cores} - {1}),
        "interop_threads": [2, 4],
        "readers": [2, 4],
        "prefetch_depth": [1, 8],
        "precision": ["bf16"],
        "batch_size": [128, 2048],
    }


def step_seconds(directory: Path, setting: dict[str, Any], steps: int) -> float:
    """Median step of a fresh model, with batches read in the background as the setting says."""
    import torch

    torch.set_num_interop_threads(setting["interop_threads"])

    from shunter.engine.config import Execution, Hyperparameters
    from shunter.engine.data.dataset import Dataset
    from shunter.engine.data.loader import BatchLoader
    from shunter.engine.data.pipeline import PrefetchPlan, ReadAhead
    from shunter.engine.loop.step import applied, build_dense_optimizer, prefetch, train_step
    from shunter.models.registry import build_model

    dataset = Dataset.load(directory)
    execution = Execution(
        threads=setting["threads"],
        precision=setting["precision"],
        batch_size=setting["batch_size"],
        prefetch_depth=setting["prefetch_depth"],
    )
    with applied(execution):
        model = build_model(model_spec(), dataset.features, seed=SEED).train()
        optimizer = build_dense_optimizer(model, Hyperparameters())
        loader = BatchLoader(dataset, "train", execution.batch_size, shuffle=True, seed=SEED)
        ahead = ReadAhead(loader.read, depth=execution.prefetch_depth)
        ahead.plan = PrefetchPlan(depth=execution.prefetch_depth, readers=setting["readers"])
        keys = [rows for epoch in range(50) for rows in list(loader.rows_of_batches(epoch=epoch))[:-1]]
        seconds = []
        with prefetch(ahead.items(keys), execution) as batches:
            for _ in range(5 + steps):
                started = time.perf_counter()
                train_step(model, optimizer, next(batches), execution.precision)
                seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[5:])


def write_data(directory: Path) -> None:
    """A synthetic log, ingested."""
    from shunter.ingestion.cache import ingest_source
    from shunter.ingestion.sources.open import open_source

    source = open_source(f"synthetic:{ROWS}", None, None, directory / "downloads")
    dataset, _ = ingest_source(source, directory / "cache", SEED, 0.01)
    (directory / "data").symlink_to(dataset.directory)


def relative_times(directory: Path, rounds: int, steps: int) -> dict[str, dict[str, list[float]]]:
    """Time of a sample over that of the base setting, by knob and value, one figure a round."""
    found: dict[str, dict[str, list[float]]] = {knob: {} for knob in values()}

    def timed(setting: dict[str, Any]) -> float:
        answer = measure("benchmarks.knobs", "--one", json.dumps(setting), str(directory / "data"), str(steps))
        return answer["step_seconds"] / setting["batch_size"]

    for _ in range(rounds):
        base = timed(BASE)
        for knob, turned in values().items():
            for value in turned:
                setting = BASE if knob == "repeat" else {**BASE, knob: value}
                found[knob].setdefault(str(value), []).append(timed(setting) / base)
    return found


def main() -> None:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="one round of few steps")
    parser.add_argument("--one", nargs=3, metavar=("SETTING", "DATA", "STEPS"), help="measure one setting and print it")
    arguments = parser.parse_args()
    if arguments.one:
        setting, data, steps = arguments.one
        print(json.dumps({"step_seconds": step_seconds(Path(data), json.loads(setting), int(steps))}))
        return
    quick = arguments.quick
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        found = relative_times(Path(folder), QUICK_ROUNDS if quick else ROUNDS, QUICK_STEPS if quick else STEPS)
    medians = {knob: {value: statistics.median(times) for value, times in one.items()} for knob, one in found.items()}
    spreads = {knob: max(1.0, *one.values()) / min(1.0, *one.values()) for knob, one in medians.items()}
    rows = [
        (knob, ", ".join(f"{value}: {ratio:.2f}" for value, ratio in one.items()), f"{spreads[knob]:.2f}")
        for knob, one in medians.items()
    ]
    table("Time of a sample over that of the base setting", ("knob", "by value", "spread"), rows)
    publish(
        "knobs",
        {f"spread_{knob}": round(spread, 2) for knob, spread in spreads.items()},
        {"base": BASE, "ratios": found, "rows": ROWS},
        seeds=[SEED],
        quick=quick,
    )


if __name__ == "__main__":
    main()
