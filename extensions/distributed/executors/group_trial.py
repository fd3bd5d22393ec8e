"""Timing of some steps of a multi-process training.

Run as `python -m shunter.extensions.distributed.executors.group_trial DIR`.

The processes run the training's own loop, with its table division and threads, and end after a few steps. Compiled and
uncompiled steps alternate, so that both see the same load of the machine. If a process hangs, all processes are ended.
"""

import faulthandler
import math
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shunter.engine.executors.compilation import PROBE_STEPS
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.loop.step import peak_memory_bytes
from shunter.engine.loop.trainer import train
from shunter.engine.results import StepTiming
from shunter.extensions.distributed.links.processes import Report, join_group, run_group, run_member
from shunter.extensions.distributed.private_files import read_private, write_private
from shunter.extensions.distributed.training.plan import Sharding, with_stored_machine
from shunter.extensions.distributed.training.processes import ManyProcesses
from shunter.models.registry import Model

TASK = "trial.pickle"
LONGEST_SECONDS = 180  # limit of a trial, including compiling: after that its processes end, and nothing is compiled
TURN_STEPS = 3
WARM_UPS = 2 * TURN_STEPS


def time_group(job: ClickJob, sharding: Sharding, processes: int) -> StepTiming:
    """Measure some training steps in several processes of this machine; `job` has the threads of one process.

    Raises:
        HardwareError: A process failed or took too long; all have ended.
        ShunterError: A process raised this error.
    """
    found: dict[str, Any] = {}
    # A trial also writes tables that are kept in files, therefore beside the data, as a single process does.
    data = job.dataset.directory
    in_files = job.execution.embedding_memory_bytes is not None and os.access(data, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="shunter-", dir=data if in_files else None) as name:
        write_private((job, sharding), Path(name) / TASK)
        run_group(
            "shunter.extensions.distributed.executors.group_trial",
            Path(name),
            processes,
            threads=job.execution.threads,
            on_report=found.__setitem__,
        )
    return StepTiming(**found["timing"])


def main(folder: Path, report: Report) -> None:
    """Run one process of a step time measurement."""
    faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
    job, sharding = read_private(folder / TASK)
    join_group(folder)
    checkpoint, device = folder / "checkpoint", torch.device(job.execution.device)
    ends: list[float] = []
    wanted = PROBE_STEPS * (2 if job.execution.compiled else 1)

    def on_step(_: int, __: int) -> None:
        ends.append(time.perf_counter())
        if len(ends) > WARM_UPS + wanted:
            raise _MeasuredError

    processes = _InTurns(job.dataset, with_stored_machine(sharding, device, checkpoint))
    # On small data, early stopping would end the training before its steps are measured.
    job = replace(job, schedule=replace(job.schedule, patience=job.schedule.max_epochs))
    with suppress(_MeasuredError):
        train(job, Hooks(on_step=on_step), Checkpointing(checkpoint, seconds=math.inf), processes=processes)
    # The median excludes work between two steps, such as the end of an epoch.
    taken = np.diff(ends[WARM_UPS:])
    eager = None
    if processes.compile_seconds is not None:
        is_eager = np.array(processes.was_eager[WARM_UPS + 1 :][: len(taken)])
        eager, taken = float(np.median(taken[is_eager])), taken[~is_eager]
    timing = StepTiming.of_steps(
        taken,
        compile_seconds=processes.compile_seconds,
        peak_memory_bytes=peak_memory_bytes(device),
        eager_step_seconds=eager,
    )
    report("timing", asdict(timing))


class _MeasuredError(Exception):
    """Exception that ends the training loop, in every process, once all steps are measured."""


class _InTurns(ManyProcesses):
    """Process group that alternates compiled and uncompiled steps, and records the compile time.

    Attributes:
        compile_seconds: Duration of the compilation; None if nothing was compiled.
        was_eager: For each step, True if it ran uncompiled.
    """

    compile_seconds: float | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.was_eager: list[bool] = []

    def compile(self, *arguments: Any, **options: Any) -> float | None:
        self.compile_seconds = taken = super().compile(*arguments, **options)
        return taken

    def step(
        self, model: Model, optimizer: torch.optim.Optimizer, batch: Any, precision: str, weights: Tensor | None = None
    ) -> Tensor:
        is_eager = len(self.was_eager) // TURN_STEPS % 2 == 1
        self.was_eager.append(is_eager)
        compiled = model.compiled_step, model.compiled_layers
        if is_eager:
            model.compiled_step = model.compiled_layers = None
        try:
            return super().step(model, optimizer, batch, precision, weights)
        finally:
            model.compiled_step, model.compiled_layers = compiled


if __name__ == "__main__":
    run_member(main)
