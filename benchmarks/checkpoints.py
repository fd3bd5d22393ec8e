"""Checkpoints of rows that have changed, in few bits: what they write and keep, and what they cost in quality and time.

A DLRM of more than a million rows learns clicks whose ids follow a power law, and another one the sample of Criteo's
log, by the product's own trainer. Against whole checkpoints in full precision, kept as often and as many, each width is
restored as often as the rule allows for it (`shunter.engine.checkpoint.checkpoint_settings`), spread over training by
interrupting it, and its quality is compared with a training that nothing interrupts. Bytes are those of trainings that
no one
interrupts: as an interval is shorter here than the writing of all rows in few bits takes, and far longer where
checkpoints are minutes apart, these wait at the end of each until the writer is done; that is no part of any time.
The time of a step is taken while a slow disk, for which the writer is throttled, keeps the writer at work, in turns
with steps beside which nothing is written; of each the turn that others disturbed least counts.

    python -m benchmarks.checkpoints [--quick] [--parts zipf criteo times] [--bits 32 8 4 3 2]

Parts and widths merge with what earlier runs have found of the others. `times` alone, waits and steps, needs the
machine for itself.
"""

import argparse
import gc
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import yaml

from benchmarks.quality.files import LOGS, write_files
from benchmarks.report import parse_arguments, publish, result_path, table
from shunter.engine.checkpoint.background import WRITER, Throttle
from shunter.engine.checkpoint.checkpoint_settings import CheckpointFigures, CheckpointSettings, StoredBits
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.open import open_source
from shunter.models.registry import model_spec
from shunter.requests import CheckpointRequest

SEED = 0
FIELDS, IDS = 8, 300_000
SAMPLES = 1_000_000
BITS: tuple[StoredBits, ...] = (32, 8, 4, 3, 2)
# Restores by bits, as many as Check-N-Run (NSDI 2022) allows; full precision is restored once, to show that nothing
# changes, and 8 bits as often as any.
RESTORES = {32: 1, 2: 1, 3: 3, 4: 20, 8: 30}
CHECKPOINTS = 16  # in an epoch
SLOW_BYTES_PER_SECOND = 2 << 20
BUSY_FROM_STEP = 4  # the writer is at work from here on, and longer than the training takes
TIMED_BITS: tuple[StoredBits, ...] = (32, 8, 4)  # what tables of this size take by themselves, larger ones, the dearest
LOG_PARTS = ("zipf", "criteo")
PARTS = (*LOG_PARTS, "times")


def zipf_log(folder: Path, samples: int, ids: int) -> Dataset:
    """Clicks whose ids follow a power law, probability ~ 1 / (rank + 10), with a hidden effect of each id."""
    random = np.random.default_rng(SEED)
    logits = np.full(samples, -1.2)
    columns: dict[str, Any] = {}
    for field in range(FIELDS):
        drawn = (10 * ((ids / 10 + 1) ** random.random(samples) - 1)).astype(np.int64)
        logits += random.normal(0, 0.5, ids + 1)[drawn]
        columns[f"field{field}"] = drawn
    columns["number"] = random.normal(0, 1, samples).astype(np.float32)
    logits += 0.5 * columns["number"]
    columns["label"] = (random.random(samples) < 1 / (1 + np.exp(-logits))).astype(np.int8)
    pd.DataFrame(columns).to_parquet(folder / "clicks.parquet", index=False)
    schema = {
        "label": "label",
        "numeric": ["number"],
        "categorical": [f"field{field}" for field in range(FIELDS)],
        "vocabulary": {"min_count": 1},
    }
    (folder / "schema.yaml").write_text(yaml.safe_dump(schema))
    source = open_source(str(folder / "clicks.parquet"), None, str(folder / "schema.yaml"), folder)
    return ingest_source(source, folder / "cache", SEED, 0.0)[0]


def criteo_log(folder: Path) -> Dataset:
    """The sample of Criteo's log in the parts of `benchmarks.quality`."""
    folder.mkdir()
    paths = write_files(LOGS["criteo"], folder)
    held_out = {part: paths[part] for part in ("validation", "test")}
    source = open_source(paths["data"], None, paths["schema_file"], folder, held_out)
    return ingest_source(source, folder / "cache", SEED, 0.0)[0]


def job_of(dataset: Dataset, batch_size: int, epochs: int) -> ClickJob:
    """The default DLRM with its default rates."""
    return ClickJob(
        dataset,
        model_spec("dlrm"),
        Hyperparameters(),
        Execution(threads=2, batch_size=batch_size),
        Schedule(max_epochs=epochs, patience=epochs, seed=SEED),
    )


def interrupted(
    job: ClickJob, checkpoint_settings: CheckpointSettings, restores: int, every_steps: int, folder: Path
) -> TrainResult:
    """Train with interruptions spread evenly, and go on each time from the last checkpoint."""
    steps = job.schedule.max_epochs * (job.dataset.splits["train"].rows // job.execution.batch_size)
    stops = [round(steps * (number + 1) / (restores + 1)) for number in range(restores)]
    checkpointing = Checkpointing(folder, steps=every_steps, checkpoint_settings=checkpoint_settings)
    for stop in stops:

        def interrupt(step: int, _: int, stop: int = stop) -> None:
            if step >= stop:
                raise KeyboardInterrupt

        try:
            return train(job, Hooks(on_step=interrupt), checkpointing)
        except KeyboardInterrupt:
            gc.collect()
    return train(job, checkpointing=checkpointing)


def in_peace(job: ClickJob, checkpoint_settings: CheckpointSettings, every_steps: int, folder: Path) -> TrainResult:
    """Train without interruption; each checkpoint is on the disk before the next is due."""

    def settle(step: int, _: int) -> None:
        if step % every_steps == 0:
            for thread in threading.enumerate():
                if thread.name == WRITER:
                    thread.join()

    return train(
        job, Hooks(on_step=settle), Checkpointing(folder, steps=every_steps, checkpoint_settings=checkpoint_settings)
    )


def quality(
    name: str, job: ClickJob, folder: Path, widths: Sequence[StoredBits], *, with_bytes: bool
) -> Iterator[dict[str, Any]]:
    """Quality by width beside a training without interruption, and bytes beside whole checkpoints; after each width."""
    rows = job.dataset.splits["train"].rows
    every_steps = max(rows // job.execution.batch_size // CHECKPOINTS, 1)
    undisturbed = train(job)
    runs: dict[str, TrainResult] = {}
    if with_bytes and 32 in widths:
        runs["whole"] = in_peace(job, CheckpointSettings(bits=32, rows="full"), every_steps, folder / f"{name}-whole")
    for bits in widths:
        checkpoint_settings = CheckpointSettings(bits=bits)
        runs[str(bits)] = interrupted(job, checkpoint_settings, RESTORES[bits], every_steps, folder / f"{name}-{bits}")
        # The same without a restore: what is written and kept does not hang on how often it was needed.
        if with_bytes:
            runs[f"{bits} undisturbed"] = in_peace(job, checkpoint_settings, every_steps, folder / f"{name}-{bits}-0")
        for made in folder.glob(f"{name}-*"):
            shutil.rmtree(made)
        yield {
            "rows": sum(job.dataset.features.table_rows),
            "undisturbed_ne": undisturbed.validation.ne,
            "runs": {
                label: {"ne": result.validation.ne, "figures": asdict(figures_of(result))}
                for label, result in runs.items()
            },
        }


def figures_of(result: TrainResult) -> CheckpointFigures:
    """What the checkpoints of a training came to."""
    assert result.checkpoints is not None, "it kept some"
    return result.checkpoints


def slowdown(job: ClickJob, folder: Path, turns: int) -> dict[str, list[float]]:
    """Mean seconds of a step, in turns: beside nothing, and beside a writer that a slow disk keeps at work."""
    keepings = {"alone": Checkpointing(folder / "alone", seconds=1e9, checkpoint_settings=CheckpointSettings(bits=32))}
    for bits in TIMED_BITS:
        checkpoint_settings = CheckpointSettings(bits=bits, bytes_per_second=SLOW_BYTES_PER_SECOND)
        keepings[str(bits)] = Checkpointing(
            folder / str(bits), steps=BUSY_FROM_STEP, checkpoint_settings=checkpoint_settings
        )
    seconds: dict[str, list[float]] = {name: [] for name in keepings}
    for turn in range(turns):
        for name in list(keepings)[:: 1 if turn % 2 == 0 else -1]:
            with ExitStack() as steps_are_over:  # then the disk is fast: what is left to be written is in no step

                def end(_: Any, stack: ExitStack = steps_are_over) -> None:
                    stack.enter_context(patch.object(Throttle, "wrote"))

                result = train(job, Hooks(on_epoch=end), checkpointing=keepings[name])
            seconds[name].append(result.compute_seconds * job.execution.batch_size / result.samples_seen)
            shutil.rmtree(folder / name)
    return seconds


def stalls(job: ClickJob, folder: Path) -> dict[str, float]:
    """Mean seconds that training waits for a checkpoint, by width."""
    every_steps = max(job.dataset.splits["train"].rows // job.execution.batch_size // CHECKPOINTS, 1)
    found = {}
    for bits in TIMED_BITS:
        figures = figures_of(in_peace(job, CheckpointSettings(bits=bits), every_steps, folder / f"stall-{bits}"))
        found[str(bits)] = figures.stall_seconds / figures.written
    return found


def main() -> None:
    """Measure, print a table and publish."""
    arguments = parse_arguments(__doc__, _add_parts)
    is_whole = set(arguments.parts) == set(PARTS) and set(arguments.bits) == set(BITS)
    found: dict[str, Any] = {}
    for found in measured(arguments.parts, arguments.bits, quick=arguments.quick):
        before = {} if is_whole else _found_before(quick=arguments.quick)
        found = _merged(before, found)  # noqa: PLW2901 - what was measured goes on in the generator
        missing = _missing(found)
        publish(
            "checkpoints",
            {} if missing else headline_of(found),
            {**found, "restores": RESTORES, "slow_bytes_per_second": SLOW_BYTES_PER_SECOND},
            seeds=[SEED],
            quick=arguments.quick,
            partial=bool(missing),
        )
        if not missing:
            result_path("checkpoints", "partial").unlink(missing_ok=True)
    show({log: found[log] for log in LOG_PARTS if log in found})
    if missing := _missing(found):
        print(f"Still to be measured: {', '.join(sorted(missing))}.")


def measured(parts: Sequence[str], widths: Sequence[StoredBits], *, quick: bool) -> Iterator[dict[str, Any]]:
    """What was found so far, after each piece of work."""
    found: dict[str, Any] = {}
    shrink = 16 if quick else 1
    with tempfile.TemporaryDirectory(prefix="shunter-benchmark-") as name:
        folder = Path(name)
        if "criteo" in parts:
            criteo = job_of(criteo_log(folder / "criteo"), 256, epochs=2)
            for found["criteo"] in quality("criteo", criteo, folder, widths, with_bytes=False):
                yield found
        if {"zipf", "times"} & set(parts):
            zipf = job_of(zipf_log(folder, SAMPLES // shrink, IDS // shrink), 2_048, epochs=1)
            if "zipf" in parts:
                for found["zipf"] in quality("zipf", zipf, folder, widths, with_bytes=True):
                    yield found
            if "times" in parts:
                steps = slowdown(zipf, folder, turns=2 if quick else 3)
                found["times"] = {"step_seconds": steps, "stall_seconds": stalls(zipf, folder)}
                yield found


def _add_parts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured; the others stay")
    parser.add_argument("--bits", nargs="+", type=int, choices=BITS, default=BITS, help="widths; the others stay")


def _merged(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """What was found now takes the place of what was found before, width by width."""
    merged = before | found
    for log in LOG_PARTS:
        if log in before and log in found:
            merged[log] = found[log] | {"runs": before[log]["runs"] | found[log]["runs"]}
    return merged


def _missing(found: dict[str, Any]) -> set[str]:
    """Parts that nothing was found of yet, or not of each width."""
    labels = {str(bits) for bits in BITS}
    return {
        part for part in PARTS if part not in found or (part in LOG_PARTS and not labels <= found[part]["runs"].keys())
    }


def _found_before(*, quick: bool) -> dict[str, Any]:
    """What earlier runs have found of each part, the unfinished ones last."""
    found: dict[str, Any] = {}
    for path in (result_path("checkpoints", "quick" if quick else ""), result_path("checkpoints", "partial")):
        details = json.loads(path.read_text())["details"] if path.exists() else {}
        found |= {part: details[part] for part in PARTS if part in details}
    return found


def headline_of(found: dict[str, Any]) -> dict[str, float]:
    """The figures that are quoted."""
    runs = found["zipf"]["runs"]
    whole = runs["whole"]["figures"]
    headline: dict[str, float] = {"rows": found["zipf"]["rows"]}
    for bits in BITS:
        kept = runs[f"{bits} undisturbed"]["figures"]
        bytes_each = kept["bytes_written"] / kept["written"]
        headline[f"bandwidth_ratio_{bits}"] = round(whole["bytes_written"] / whole["written"] / bytes_each, 2)
        headline[f"capacity_ratio_{bits}"] = round(whole["bytes_kept"] / kept["bytes_kept"], 2)
        for log, prefix in (("zipf", ""), ("criteo", "criteo_")):
            without, restored = found[log]["undisturbed_ne"], found[log]["runs"][str(bits)]["ne"]
            headline[f"{prefix}ne_gap_{bits}"] = round(restored / without - 1, 6)
    if (times := found.get("times")) is None:
        return headline
    steps, each = times["step_seconds"], max(times["stall_seconds"].values())
    headline["stall_seconds"] = round(each, 4)
    headline["stall_share"] = round(each / (60 * CheckpointRequest().checkpoint_minutes), 6)
    for bits in TIMED_BITS:
        headline[f"step_slowdown_{bits}"] = round(min(steps[str(bits)]) / min(steps["alone"]) - 1, 4)
    headline["step_slowdown"] = max(headline[f"step_slowdown_{bits}"] for bits in TIMED_BITS)
    return headline


def show(found: dict[str, dict[str, Any]]) -> None:
    """Print what each width came to."""
    for log, values in found.items():
        rows = [
            [
                label,
                f"{run['ne']:.5f}",
                *(str(run["figures"][name]) for name in ("restores", "written", "full", "skipped")),
                *(f"{run['figures'][name] / 2**20:.1f}" for name in ("bytes_written", "bytes_kept")),
                f"{run['figures']['stall_seconds']:.2f}",
            ]
            for label, run in values["runs"].items()
        ]
        columns = ["bits", "NE", "restores", "written", "full", "skipped", "MiB written", "MiB kept", "stall s"]
        table(f"{log}: {values['rows']:,} rows, NE {values['undisturbed_ne']:.5f} undisturbed", columns, rows)


if __name__ == "__main__":
    main()
