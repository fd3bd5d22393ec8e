"""What probes find, from a table instead of a machine."""

from shunter.engine.probes.measurement import Measurement
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import Placement
from tests.hardware.profiles import make_workload


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


def step_observation(machine: str = "") -> StepObservation:
    """A step that took what was predicted, on a machine."""
    return StepObservation(
        workload=make_workload(),
        placement=Placement(accelerator="cpu", threads=2, precision="fp32", batch_size=512),
        accelerator_model="test",
        host="0123456789abcdef",
        machine=machine,
        predicted_seconds=0.01,
        measured_seconds=0.01,
        measured_at="2026-01-01T00:00:00+00:00",
    )
