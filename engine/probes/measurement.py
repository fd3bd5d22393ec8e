"""Short measurement of a model's training step at one placement."""

import logging
from statistics import NormalDist

from pydantic import Field

from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.memory import is_out_of_memory
from shunter.errors import TooLargeError
from shunter.frozen import Frozen
from shunter.hardware.devices.power_limit import limited
from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.types import Placement
from shunter.model_families import PROBLEMS, problem_of
from shunter.models.graph import GraphSpec
from shunter.models.spec import ModelSpec

log = logging.getLogger(__name__)

Z90, Z95 = (NormalDist().inv_cdf(share) for share in (0.9, 0.95))


class Measurement(Frozen):
    """Result of a short probe at one placement."""

    steps: int
    step_seconds: float
    memory_bytes: int
    mean_watts: float | None
    watts_measured: bool
    step_seconds_interval: tuple[float, float] | None = Field(
        default=None,
        description="Central 90 % interval of the step time, from a log-normal distribution through the 10th and 90th "
        "percentile of the probe's steps.",
    )


def measure(dataset: Dataset, spec: ModelSpec | GraphSpec, placement: Placement, steps: int) -> Measurement | None:
    """Train `spec` for a few steps at `placement`, and measure time, memory and power; None if memory was too small.

    Raises:
        HardwareError: The placement's device cannot be used, or this process has no right to set its power limit.
        RequestError: The placement has a power limit, but the operator permits no power limits.
    """
    try:
        with (
            limited(placement.accelerator, placement.power_limit_watts),
            measure_energy(placement.accelerator) as meter,
        ):
            time_steps = PROBLEMS.load_part(problem_of(spec.family), "step_timer")
            timing = time_steps(dataset, spec, execution_of(placement), steps)
    except (MemoryError, RuntimeError, TooLargeError) as error:
        if not (isinstance(error, TooLargeError) or is_out_of_memory(error)):
            raise
        log.warning("%s runs out of memory.", placement.label)
        return None
    stretch = (timing.step_seconds_p90 / timing.step_seconds_p10) ** (Z95 / (2 * Z90))
    return Measurement(
        steps=steps,
        step_seconds=timing.step_seconds,
        memory_bytes=timing.peak_memory_bytes,
        mean_watts=meter.reading.mean_watts,
        watts_measured=meter.reading.method == "measured",
        step_seconds_interval=(timing.step_seconds / stretch, timing.step_seconds * stretch),
    )
