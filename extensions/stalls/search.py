"""Stalls of one training run on this machine: from the request to the measurements."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.errors import HardwareError
from shunter.extensions.distributed.links.communication import Link
from shunter.extensions.distributed.links.processes import run_group
from shunter.extensions.distributed.private_files import read_private, write_private
from shunter.extensions.distributed.training import Machine, Sharding
from shunter.extensions.stalls.plan import StallMeasurements, StallPlan
from shunter.extensions.stalls.worker import PLAN, RESULT
from shunter.hardware.types import HardwareProfile
from shunter.models.registry import check_spec, model_spec
from shunter.requests import ProfileRequest

LATENCY_SECONDS = 50e-6  # latency of a TCP message over Ethernet between machines of one site
BYTES_PER_GBIT = 1e9 / 8
# Models measured beside the requested one: narrow and wide rows, small and large dense parts, so that the terms of
# the communication model can be estimated separately.
COMMUNICATION_SHAPES = ((8, (64,)), (64, (64,)), (16, (512, 256)), (64, (512, 256)), (32, (256, 128)))


def choose_profile(request: ProfileRequest, profiles: Sequence[HardwareProfile]) -> HardwareProfile:
    """Return the profile of the accelerator that the request names; by default of a GPU if there is one.

    Raises:
        HardwareError: There is no such accelerator.
    """
    wanted = [profile for profile in profiles if request.stalls.accelerator in (None, profile.accelerator.kind)]
    if not wanted:
        names = ", ".join(profile.accelerator.name for profile in profiles)
        raise HardwareError(
            f"The accelerator {request.stalls.accelerator} is not on this machine: choose one of {names}."
        )
    return next((profile for profile in wanted if profile.accelerator.kind == "cuda"), wanted[0])


def make_plan(dataset: Dataset, request: ProfileRequest, profile: HardwareProfile) -> StallPlan:
    """Return the plan of the measurements for a request; processes on a CPU share its cores and its memory.

    Raises:
        RequestError: The model is unknown.
    """
    accelerator = profile.accelerator
    spec = model_spec(request.model or "dlrm")
    check_spec(spec, dataset.features)
    on_cpu = accelerator.kind == "cpu"
    devices = request.stalls.devices or (min(2, accelerator.cores) if on_cpu else torch.cuda.device_count())
    return StallPlan(
        dataset=dataset,
        spec=spec,
        hyperparameters=Hyperparameters(),
        execution=Execution(
            device="cpu" if on_cpu else "cuda",
            threads=max(1, accelerator.cores // devices) if on_cpu else 1,
            precision=request.stalls.precision,
            batch_size=request.stalls.batch_size,
        ),
        processes=devices,
        sharding=Sharding(
            machine=Machine(
                memory_bytes=accelerator.memory_bytes // (devices if on_cpu else 1),
                memory_bytes_per_second=profile.copy_bytes_per_second.value,
            )
        ),
        link=Link(
            bytes_per_second=request.stalls.network_gbit * BYTES_PER_GBIT,
            latency_seconds=LATENCY_SECONDS,
            machines=max(2, devices),
        ),
        seconds=request.stalls.seconds,
        communication_specs=tuple(
            model_spec(spec.family, embedding_dim=dim, top_widths=widths) for dim, widths in COMMUNICATION_SHAPES
        ),
    )


def measure_stalls(plan: StallPlan, on_progress: Callable[[str], None] = lambda _: None) -> StallMeasurements:
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
            f"{plan.processes} processes need a CUDA device each, but there are only "
            f"{torch.cuda.device_count()}: use fewer processes."
        )

    with tempfile.TemporaryDirectory(prefix="shunter-") as name:
        folder = Path(name)
        write_private(plan, folder / PLAN)
        module, report = "shunter.extensions.stalls.worker", lambda kind, value: on_progress(value)
        run_group(module, folder, plan.processes, threads=plan.execution.threads, on_report=report)
        return read_private(folder / RESULT)
