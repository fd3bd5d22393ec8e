"""What `shunter train` takes beside its ingestion and its training steps, by the wall clock.

Each run is the command in a process of its own, over generated Criteo rows, with one trial, one epoch and, but for the
last, no baselines: `shunter train --trials 1 --ensemble-size 1 --max-epochs 1 --baselines none --explore never` (to
explore a batch size would be a second training). The first one, in an empty home, measures the machine and prepares the
databases, and Python keeps what it makes of the sources; it is shown, and does not count. The others have that profile,
and another seed each, so that each ingests and trains anew.

After each run its epoch is trained again by a bare loop in a process of its own: the same arrays, model, decay of the
embeddings, batch size, threads, precision and compiled step as the run chose, batches read ahead, nothing tracked,
checked or validated. Its seconds are those that a run needs for its steps; what the run took beyond them and its
ingestion is overhead.

`fixed_seconds` is the median overhead of the runs over few rows, `overhead_share_2m` the median share of the wall
clock of the runs over two million. In the details, `by_default` is one more run over as many rows, with the baselines
that the command trains by default: these and all that compares them are overhead there, beside the bare loop of the
run before, and `baselines_share` is the share of their trainings. `unaccounted_share` is the largest difference
between the wall clock, as seen from outside, and the one that the summary accounts for stage by stage, as a share of
the former; `other_share` is the largest share of the line `other` within. `product_step_over_bare` is the median time
of the run's own steps and its waits for batches over that of the bare loop, two million rows. `first_line_seconds` is
the median time until the first line. `processor_seconds` in the details are those of the process and its children: far
fewer than cores times wall clock on a machine that does nothing else, which `load_average` tells too.

    python -m benchmarks.overhead [--quick]
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import measure, parse_arguments, publish, table

TRAIN = ("train", "--trials", "1", "--ensemble-size", "1", "--max-epochs", "1", "--explore", "never")
NO_BASELINES = ("--baselines", "none")
FULL = {"few": 200_000, "many": 2_000_000, "repeats": 3}
QUICK = {"few": 20_000, "many": 100_000, "repeats": 1}
WARM_UP_STEPS = 5
STAGE = re.compile(r"(\w+) (-?\d+\.\d)\b")


def run(home: Path, rows: int, seed: int, options: tuple[str, ...] = NO_BASELINES) -> dict[str, Any]:
    """Train once by the command.

    Args:
        home: Home of Shunter.
        rows: Rows of the generated log.
        seed: Seed of the split, the search and the weights.
        options: Further options of the command.

    Returns:
        Wall-clock and processor seconds of the process, seconds until its first line, and the account that it printed.

    Raises:
        RuntimeError: The command failed; what it said is in the message.
    """
    command = [
        sys.executable,
        "-m",
        "shunter.flows.cli",
        *TRAIN,
        "--verbose",
        "--data",
        f"synthetic:{rows}",
        "--seed",
        str(seed),
        *options,
    ]
    environment = {**os.environ, "SHUNTER_HOME": str(home), "COLUMNS": "1000"}
    environment.pop("PREFECT_API_URL", None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Python keeps what it has made of a source, as it usually does
    before, began = _processor_seconds(), time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        first_line_seconds = time.perf_counter() - began
        said = process.stdout.read()
        status = process.wait()
        wall_seconds = time.perf_counter() - began
        errors.seek(0)
        if status:
            raise RuntimeError(f"{' '.join(command)} ended with {status}:\n{said}{errors.read()}")
    return {
        "rows": rows,
        "wall_seconds": wall_seconds,
        "processor_seconds": _processor_seconds() - before,
        "first_line_seconds": first_line_seconds,
        **account_of(said),
        "load_average": os.getloadavg()[0],
    }


def account_of(summary: str) -> dict[str, Any]:
    """What the summary says on the time: all of it, and by stage."""
    line = next(line for line in summary.splitlines() if line.startswith("Time"))
    total, _, stages = line.removeprefix("Time").partition(" s:")
    return {
        "reported_seconds": float(total),
        "account": {name: float(seconds) for name, seconds in STAGE.findall(stages)},
    }


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bare_loop(home: Path) -> dict[str, float]:
    """Train the epoch of the newest run of a home again with the engine alone; wall-clock and processor seconds."""
    os.environ["SHUNTER_HOME"] = str(home)
    from shunter.engine.checkpoint.storage import load_model
    from shunter.engine.config import Execution, Hyperparameters
    from shunter.engine.data.dataset import Dataset
    from shunter.engine.data.loader import BatchLoader
    from shunter.engine.loop.compiled_step import compile_step
    from shunter.engine.loop.step import applied, build_dense_optimizer, prefetch, train_step
    from shunter.models.ensemble import Ensemble
    from shunter.tracking.history import read_children, read_runs

    [newest] = read_runs(("train",), limit=1)
    [trial] = read_children(newest.run_id, "trial")
    dataset = Dataset.load(_newest(home / "cache", "dataset.json"))
    where = {name.removeprefix("placement."): value for name, value in newest.params.items()}
    execution = Execution(
        threads=int(where["threads"]),
        precision="bf16" if where["precision"] == "bf16" else "fp32",
        batch_size=int(where["batch_size"]),
        prefetch_depth=int(where["prefetch_depth"]),
        compiled=trial.metrics.get("time.compile_seconds", 0.0) > 0,
    )
    loader = BatchLoader(dataset, "train", execution.batch_size, shuffle=True)
    with applied(execution):
        model: Any = load_model(_newest(home / "mlflow" / "artifacts", "model.json")).train()
        if isinstance(model, Ensemble):  # of one model, that is calibrated
            (model,) = model.models
        model.embeddings.l2 = float(trial.params.get("model.embedding_l2", 0.0))
        optimizer = build_dense_optimizer(
            model,
            Hyperparameters(dense_optimizer=trial.params["model.dense_optimizer"]),  # pyright: ignore[reportArgumentType]
        )
        if execution.compiled:
            compile_step(model, optimizer, execution, next(iter(loader.batches())))
        with prefetch(
            (batch for batch, _ in zip(loader.batches(), range(WARM_UP_STEPS), strict=False)), execution
        ) as few:
            for batch in few:
                train_step(model, optimizer, batch, execution.precision)
        wall, processor = time.perf_counter(), time.process_time()
        with prefetch(loader.batches(epoch=1), execution) as batches:
            for batch in batches:
                train_step(model, optimizer, batch, execution.precision)
        return {
            "steps": len(loader),
            "wall_seconds": time.perf_counter() - wall,
            "processor_seconds": time.process_time() - processor,
            "product_seconds": trial.metrics["time.compute_seconds"] + trial.metrics["stall.wait_seconds"],
        }


def _newest(folder: Path, name: str) -> Path:
    """The folder of the newest file of that name."""
    return max(folder.rglob(name), key=lambda path: path.stat().st_mtime).parent


def overhead_seconds(one: dict[str, Any]) -> float:
    """What a run took beside its ingestion and the steps of the bare loop."""
    return one["wall_seconds"] - one["account"]["ingest"] - one["bare"]["wall_seconds"]


def unaccounted_share(one: dict[str, Any]) -> float:
    """Difference between the wall clock from outside and the one that the summary accounts for, as a share."""
    return abs(one["wall_seconds"] - one["reported_seconds"]) / one["wall_seconds"]


def main() -> None:
    """Run, compare and publish; `--bare` is one bare loop of its own process."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)

    options = parse_arguments(__doc__, add)
    if options.bare:
        print(json.dumps(bare_loop(options.bare)))
        return
    sizes = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        first = run(home, sizes["few"], seed=0)
        counted = []
        for seed, rows in enumerate([sizes["few"]] * sizes["repeats"] + [sizes["many"]] * sizes["repeats"], start=1):
            one = run(home, rows, seed)
            counted.append({**one, "bare": measure("benchmarks.overhead", "--bare", str(home))})
        few, many = counted[: sizes["repeats"]], counted[sizes["repeats"] :]
        by_default = {**run(home, sizes["many"], len(counted) + 1, options=()), "bare": many[-1]["bare"]}
    by_default |= {
        "overhead_share": round(overhead_seconds(by_default) / by_default["wall_seconds"], 4),
        "baselines_share": round(by_default["account"]["baselines"] / by_default["wall_seconds"], 4),
    }
    headline = {
        "unaccounted_share": round(max(map(unaccounted_share, counted)), 4),
        "other_share": round(max(one["account"]["other"] / one["wall_seconds"] for one in counted), 4),
        "fixed_seconds": round(statistics.median(map(overhead_seconds, few)), 2),
        "overhead_share_2m": round(statistics.median(overhead_seconds(one) / one["wall_seconds"] for one in many), 4),
        "first_line_seconds": round(statistics.median(one["first_line_seconds"] for one in counted), 2),
        "product_step_over_bare": round(
            statistics.median(one["bare"]["product_seconds"] / one["bare"]["wall_seconds"] for one in many), 3
        ),
    }
    rows = [
        (
            f"{one['rows']:,}",
            f"{one['wall_seconds']:.1f}",
            f"{one['processor_seconds']:.1f}",
            f"{one['account']['ingest']:.1f}",
            f"{one['bare']['wall_seconds']:.1f}",
            f"{overhead_seconds(one):.1f}",
        )
        for one in (*counted, by_default)
    ]
    columns = ("rows", "wall, s", "processor, s", "ingestion, s", "bare loop, s", "overhead, s")
    table("shunter train, its profile measured before; the last with its default baselines", columns, rows)
    seeds = range(len(counted) + 2)
    details = {"first": first, "runs": counted, "by_default": by_default}
    publish("overhead", headline, details, seeds=seeds, quick=options.quick)


if __name__ == "__main__":
    main()
