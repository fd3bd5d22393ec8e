"""One training in one, two and four processes: how far the loss curves lie apart, and what a step takes.

Training amplifies rounding: with large steps the loss follows the seventh digit of anything. So the gaps are measured
with small ones, and beside them stands a control: one process whose learning rate is off by 1e-7 of itself, as much as
float32 rounds. With the usual rates, gap and control are both larger and as large as each other.

The gaps and the repetition hold anywhere. Step times are those of this machine: where the processes are more than its
cores, they take turns, so that they show the cost of communication and no gain.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks import report
from benchmarks.optimizers import ingest_planted
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import Checkpointing, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import TrainResult
from shunter.extensions.distributed.executors.process_group import ProcessGroup, machine_of
from shunter.extensions.distributed.tables.sharding_types import (
    EXACT_SHARDING_TYPES,
    CommunicationPrecision,
    ShardingType,
)
from shunter.extensions.distributed.training import Machine, Sharding
from shunter.hardware.devices.discovery import host_fingerprint, local_accelerators
from shunter.hardware.probes.accelerator import measure_profile
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec

SEED = 0
FULL_ROWS, QUICK_ROWS = 100_000, 12_000
SPEC = model_spec(embedding_dim=16, bottom_widths=(512, 256, 64), top_widths=(512, 256))
USUAL = Hyperparameters(dense_learning_rate=1e-3, embedding_learning_rate=0.02)
SMALL = Hyperparameters(dense_learning_rate=1e-4, embedding_learning_rate=0.002)
ROUNDING = 1e-7
EXECUTION = Execution(threads=1, batch_size=2048)


class Trainings:
    """Trains the same model again and again, and keeps what each run took."""

    def __init__(
        self, dataset: Dataset, machine: Machine, folder: Path, schedule: Schedule, rates: Hyperparameters
    ) -> None:
        self.dataset, self.machine, self.folder, self.schedule = dataset, machine, folder, schedule
        self.rates = rates
        rounded = replace(rates, dense_learning_rate=rates.dense_learning_rate * (1 + ROUNDING))
        self.results: dict[str, TrainResult] = {
            "1 process": train(
                TrainingJob(dataset, SPEC, rates, EXECUTION, schedule), checkpointing=Checkpointing(folder / "alone")
            ),
            "control": train(
                TrainingJob(dataset, SPEC, rounded, EXECUTION, schedule),
                checkpointing=Checkpointing(folder / "control"),
            ),
        }

    def add(
        self,
        name: str,
        processes: int,
        types: tuple[ShardingType, ...] = EXACT_SHARDING_TYPES,
        precision: CommunicationPrecision = "fp32",
    ) -> None:
        """Train in processes, one thread each."""
        execution = Execution(threads=processes, batch_size=EXECUTION.batch_size)
        sharding = Sharding(machine=self.machine, types=types, precision=precision)
        placement = Placement(
            accelerator="cpu",
            threads=processes,
            precision="fp32",
            batch_size=EXECUTION.batch_size,
            processes=processes,
        )
        self.results[name] = ProcessGroup(placement, sharding).run(
            TrainingJob(self.dataset, SPEC, self.rates, execution, self.schedule),
            checkpointing=Checkpointing(self.folder / name),
        )

    def gap(self, name: str) -> float:
        """Largest distance between the losses of a run, in training and validation, and those of one process."""
        pairs = zip(curve(self.results[name]), curve(self.results["1 process"]), strict=True)
        return max(abs(left - right) for left, right in pairs)

    def are_equal(self, name: str, other: str) -> bool:
        """Whether two runs have bitwise the same weights and losses."""
        left, right = self.results[name], self.results[other]
        weights = zip(left.model.state_dict().values(), right.model.state_dict().values(), strict=True)
        return curve(left) == curve(right) and all(torch.equal(one, two) for one, two in weights)

    def step_seconds(self, name: str) -> float:
        """Mean of a step, waiting included, validation and checkpoints not."""
        result = self.results[name]
        return (result.wait_seconds + result.compute_seconds) / result.history[-1].step


def curve(result: TrainResult) -> list[float]:
    """The losses of a run, epoch by epoch."""
    return [loss for epoch in result.history for loss in (epoch.train_logloss, epoch.validation.logloss)]


def measure_machine() -> Machine:
    """The main memory, shared by the largest number of processes."""
    accelerators = local_accelerators()
    profile = measure_profile(accelerators[0], host_fingerprint(accelerators))
    return machine_of(profile, 4)


def main() -> None:
    """Measure and publish."""
    quick = report.parse_arguments(__doc__).quick
    with TemporaryDirectory() as name:
        folder, machine = Path(name), measure_machine()
        dataset = ingest_planted(QUICK_ROWS if quick else FULL_ROWS, folder)
        epochs = 1 if quick else 2
        schedule = Schedule(max_epochs=epochs, patience=epochs)
        small = Trainings(dataset, machine, folder / "small", schedule, SMALL)
        usual = Trainings(dataset, machine, folder / "usual", schedule, USUAL)
        for trainings in (small, usual):
            trainings.add("2 processes", 2)
            trainings.add("4 processes", 4)
        small.add("2 processes again", 2)
        if not quick:
            for kind in EXACT_SHARDING_TYPES:
                small.add(f"2 processes, {kind}", 2, (kind,))
            small.add("2 processes, row_wise, fp16 sent", 2, ("row_wise",), "fp16")
            small.add("2 processes, row_wise, bf16 sent", 2, ("row_wise",), "bf16")
        publish(small, usual, quick=quick)


def publish(small: Trainings, usual: Trainings, *, quick: bool) -> None:
    """Print and write the figures."""
    runs = {"small": figures(small, "small rates"), "usual": figures(usual, "usual rates")}
    headline = {
        "loss_gap_2": runs["small"]["2 processes"]["loss_gap"],
        "loss_gap_4": runs["small"]["4 processes"]["loss_gap"],
        "loss_gap_control": runs["small"]["control"]["loss_gap"],
        "loss_gap_2_usual_rates": runs["usual"]["2 processes"]["loss_gap"],
        "loss_gap_control_usual_rates": runs["usual"]["control"]["loss_gap"],
        "bitwise_repeat": small.are_equal("2 processes", "2 processes again"),
        "step_seconds_1": round(runs["small"]["1 process"]["step_seconds"], 5),
        "step_seconds_2": round(runs["small"]["2 processes"]["step_seconds"], 5),
        "step_seconds_4": round(runs["small"]["4 processes"]["step_seconds"], 5),
    }
    assert all(math.isfinite(figure) for figure in headline.values())
    steps = small.results["1 process"].history[-1].step
    report.publish("scaling", headline, {"steps": steps, "runs": runs}, seeds=[SEED], quick=quick)


def figures(trainings: Trainings, title: str) -> Mapping[str, dict[str, Any]]:
    """What each run took, printed too."""
    runs: Mapping[str, dict[str, Any]] = {
        name: {
            "loss_gap": trainings.gap(name),
            "step_seconds": trainings.step_seconds(name),
            "peak_memory_bytes": result.peak_memory_bytes,
            "losses": curve(result),
        }
        for name, result in trainings.results.items()
    }
    steps = trainings.results["1 process"].history[-1].step
    report.table(
        f"{steps} steps of {EXECUTION.batch_size} samples, {title}, a thread a process, "
        f"{report.machine()['usable_cores']} usable cores",
        ("run", "distance of losses", "ms a step", "memory MiB"),
        [
            (
                name,
                f"{run['loss_gap']:.1e}",
                f"{1e3 * run['step_seconds']:.1f}",
                f"{run['peak_memory_bytes'] / 2**20:,.0f}",
            )
            for name, run in runs.items()
        ],
    )
    return runs


if __name__ == "__main__":
    main()
