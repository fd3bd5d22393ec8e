"""Launcher of the stall profiler's processes, which returns their result."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from shunter.engine.private_files import read_private, write_private
from shunter.errors import HardwareError
from shunter.extensions.distributed.links.processes import run_group
from shunter.extensions.stalls.plan import StallMeasurements, StallPlan
from shunter.extensions.stalls.worker import PLAN, RESULT

MODULE = "shunter.extensions.stalls.worker"


def measure_stalls(plan: StallPlan, on_progress: Callable[[str], None] | None = None) -> StallMeasurements:
    """Run all measurements of a plan in separate processes.

    Args:
        plan: Plan of the measurements.
        on_progress: Called with a description of the current measurement.

    Raises:
        RequestError: The model cannot be built, or a step needs more samples than the data has.
        HardwareError: There are too few devices, or a process failed.
    """
    if plan.execution.device.startswith("cuda") and plan.processes > torch.cuda.device_count():
        raise HardwareError(
            f"{plan.processes} processes want a CUDA device each, and there are {torch.cuda.device_count()}: use fewer."
        )

    def keep(kind: str, value: str) -> None:
        if on_progress is not None:
            on_progress(value)

    with tempfile.TemporaryDirectory(prefix="shunter-") as name:
        folder = Path(name)
        write_private(plan, folder / PLAN)
        run_group(MODULE, folder, plan.processes, threads=plan.execution.threads, on_report=keep)
        return read_private(folder / RESULT)
