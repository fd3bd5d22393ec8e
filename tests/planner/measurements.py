"""What probes find, from a table instead of a machine."""

from typing import Any

from shunter.engine.probes.measurement import Measurement
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import Placement
from shunter.planner.history import PastRun
from tests.hardware.profiles import make_workload

SOME_DAY = "2026-01-01T00:00:00+00:00"


def measurement(
    step_seconds: float,
    *,
    steps: int = 9,
    memory_bytes: int = 1,
    mean_watts: float | None = None,
    watts_measured: bool = False,
) -> Measurement:
    """A probe that found this step time."""
    return Measurement(
        steps=steps,
        step_seconds=step_seconds,
        memory_bytes=memory_bytes,
        mean_watts=mean_watts,
        watts_measured=watts_measured,
    )


def at(batch_size: int, threads: int = 1) -> Placement:
    """A placement on this processor in single precision."""
    return Placement(accelerator="cpu", threads=threads, precision="fp32", batch_size=batch_size)


def step_observation(**changes: Any) -> StepObservation:
    """A step that took what was predicted, but for the changes."""
    step = StepObservation(
        workload=make_workload(),
        placement=at(512, threads=2),
        accelerator_model="test",
        host="0123456789abcdef",
        predicted_seconds=0.01,
        measured_seconds=0.01,
        measured_at=SOME_DAY,
    )
    return step.model_copy(update=changes)


def past_run(placement: Placement, /, **changes: Any) -> PastRun:
    """A training of the DLRM at a placement, of which nothing but the changes is known."""
    values = {"run_id": "run", "kind": "train", "ended_at": SOME_DAY, "data": "abc", "family": "dlrm"}
    unknown = dict.fromkeys(("auc", "seconds", "joules", "cost"))
    return PastRun.model_validate({**values, **unknown, "placement": placement, **changes})
