"""Steps of two processes, compiled beside not compiled, on this machine.

Both are measured as `shunter train --processes 2` measures them before it chooses: by its own trial, in which compiled
steps and others take turns of three, so that the ratio is of one machine in one state. Each process has a thread.

    python -m benchmarks.compiled_processes [--quick]
"""

import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report
from benchmarks.optimizers import ingest_planted
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.profiling.profiles import machine_profiles
from shunter.extensions.distributed.executors.process_group import ProcessGroup, machine_of
from shunter.extensions.distributed.training import Sharding
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec

PROCESSES, THREADS, ROWS, TURNS = 2, 2, 50_000, 3
SCHEDULE = Schedule(max_epochs=10)  # a trial ends long before


@dataclass(frozen=True)
class Case:
    """What is trained.

    Attributes:
        batch_size: Samples of a step of both processes.
        spec: Fields of the model, beside its defaults.
    """

    batch_size: int
    spec: dict[str, Any] = field(default_factory=dict)


DEEP = {"embedding_dim": 16, "bottom_widths": (512, 256), "top_widths": (512, 256)}
CASES = {
    "default": Case(512),
    "small_batch": Case(128),
    "deep": Case(2048, DEEP),
    "dcnv2": Case(1024, {"family": "dcnv2"}),
}


def main() -> None:
    """Measure and publish."""
    quick = report.parse_arguments(__doc__).quick
    logging.disable(logging.WARNING)
    memory = machine_of(machine_profiles()[0], PROCESSES)
    details: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(name) / "compiled")  # nothing is found of earlier runs
        dataset = ingest_planted(ROWS // 3 if quick else ROWS, Path(name))
        for case, asked in list(CASES.items())[: 1 if quick else None]:
            execution = Execution(threads=THREADS, batch_size=asked.batch_size)
            job = TrainingJob(dataset, model_spec(**asked.spec), Hyperparameters(), execution, SCHEDULE)
            place = Placement(
                accelerator="cpu",
                threads=THREADS,
                precision="fp32",
                batch_size=asked.batch_size,
                processes=PROCESSES,
            )
            details[case] = _turns(ProcessGroup(place, Sharding(machine=memory)), job, 1 if quick else TURNS)
    report.table(
        "steps of two processes, milliseconds",
        ("case", "eager", "compiled", "ratio", "compiling, seconds"),
        [
            (
                case,
                f"{1e3 * one['eager_seconds']:.1f}",
                f"{1e3 * one['compiled_seconds']:.1f}",
                f"{one['ratio']:.3f}",
                f"{one['compile_seconds']:.1f}",
            )
            for case, one in details.items()
        ],
    )
    headline = {f"{case}_ratio": one["ratio"] for case, one in details.items()}
    headline["compiled_ratio_2_processes"] = geometric_mean(headline.values())
    headline["compile_seconds"] = max(one["compile_seconds"] for one in details.values())
    report.publish("compiled_processes", headline, details, seeds=[0], quick=quick)


def _turns(executor: ProcessGroup, job: ClickJob, turns: int) -> dict[str, Any]:
    """Some trials; the ratio is their median."""
    compiled = replace(job, execution=replace(job.execution, compiled=True))
    measured = [executor.trial.measure(compiled) for _ in range(turns)]
    ratios, eager = [], []
    for one in measured:
        assert one.eager_step_seconds is not None, "a compiler works here"
        eager.append(one.eager_step_seconds)
        ratios.append(one.step_seconds / one.eager_step_seconds)
    return {
        "eager_seconds": median(eager),
        "compiled_seconds": median(one.step_seconds for one in measured),
        "ratio": median(ratios),
        "ratios": ratios,
        "compile_seconds": max(one.compile_seconds or 0.0 for one in measured),
    }


if __name__ == "__main__":
    main()
