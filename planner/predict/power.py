"""Power limits of GPUs as candidates: measured at the leading placement, if the operator permits it.

Dynamic power grows faster than the clock frequency, so that a lower limit often saves more energy than it costs time
(You, Chung and Chowdhury, "Zeus", NSDI 2023, section 4.2, which also profiles each limit for some steps). The leader's
change under a limit is assumed for the other batch sizes on that GPU, until they are measured too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shunter.engine.probes.measurement import Measurement
from shunter.errors import HardwareError
from shunter.hardware.cost.cost_model import epoch_steps
from shunter.hardware.types import Placement, Workload
from shunter.planner.assessment import Candidate
from shunter.planner.rank.totals import Terms
from shunter.settings import Settings

LIMITS_TRIED = 5
MOST_STEPS, LEAST_STEPS, PROBE_SECONDS = 50, 8, 0.5  # a power limit takes effect within some tens of milliseconds

PowerLimits = Callable[[str], Sequence[float]]
"""Function that returns the power limits (in watts) worth trying on an accelerator; empty if limits are unsupported."""


def wants_power_limits(leader: Candidate, terms: Terms) -> bool:
    """Return True if a lower power limit can help the request and the operator permits it."""
    limits = terms.limits
    weighs_power = terms.weights.energy > 0 or terms.weights.carbon > 0
    concerns_power = weighs_power or limits.max_kwh is not None or limits.max_watts is not None
    return (
        Settings().allow_power_limit
        and concerns_power
        and leader.placement.node is None
        and leader.placement.accelerator.startswith("cuda")
    )


def device_power_limits(accelerator: str) -> list[float]:
    """Return power limits in watts, from below the device's highest to its lowest; empty if inaccessible."""
    from shunter.hardware.devices.power_limit import GpuPowerLimit

    try:
        lowest, highest = GpuPowerLimit(accelerator).limit_range_watts()
    except HardwareError:
        return []
    return [round(float(watts)) for watts in np.linspace(highest, lowest, LIMITS_TRIED + 1)[1:]]


def limit_steps(leader: Candidate) -> int:
    """Return the steps to measure at a power limit: about half a second."""
    return max(LEAST_STEPS, min(MOST_STEPS, round(PROBE_SECONDS / leader.prediction.step_seconds)))


def power_limited(
    candidates: Sequence[Candidate], found: Mapping[Placement, Measurement | None], workload: Workload
) -> list[Candidate]:
    """Return the candidates at each power limit that was measured on their GPU.

    Args:
        candidates: Candidates without a limit, corrected by measurements.
        found: Measurements at power limits; those without measured power are ignored.
        workload: Demand of the training.
    """
    unlimited = {candidate.placement: candidate for candidate in candidates}
    examples: dict[tuple[str, float | None], list[_Example]] = {}
    for placement, measurement in found.items():
        without = unlimited.get(placement.model_copy(update={"power_limit_watts": None}))
        if measurement is not None and measurement.watts_measured and without is not None:
            example = _Example(placement, measurement, without)
            examples.setdefault((placement.accelerator, placement.power_limit_watts), []).append(example)
    limited = []
    for (accelerator, watts), alike in examples.items():
        for candidate in candidates:
            placement = candidate.placement.model_copy(update={"power_limit_watts": watts})
            if placement in found and found[placement] is None:
                limited.append(candidate.model_copy(update={"placement": placement, "out_of_memory": True}))
            elif candidate.placement.accelerator == accelerator:
                limited.append(
                    _limited(candidate, placement, min(alike, key=lambda one: one.distance(placement)), workload)
                )
    return limited


@dataclass(frozen=True)
class _Example:
    """Measured effect of a power limit on one candidate."""

    placement: Placement
    measurement: Measurement
    without: Candidate

    def distance(self, placement: Placement) -> tuple[bool, float]:
        """Return the distance of another placement as a sort key: precision, then batch size."""
        other = self.placement.precision != placement.precision
        return other, abs(math.log(self.placement.batch_size / placement.batch_size))


def _limited(candidate: Candidate, placement: Placement, example: _Example, workload: Workload) -> Candidate:
    """Return the candidate under a power limit.

    If it was measured under this limit, its time and power are the measured ones. Otherwise its figures without a limit
    are scaled by the ratio of the most similar candidate that was measured under this limit.
    """
    prediction, measurement = candidate.prediction, example.measurement
    is_measured = example.placement == placement
    slower = measurement.step_seconds / example.without.prediction.step_seconds
    watts = measurement.mean_watts if is_measured else _capped_watts(candidate, example)
    epoch_seconds = prediction.epoch_seconds * slower
    if is_measured:
        epoch_seconds = epoch_steps(workload, placement) * measurement.step_seconds
    source = "measured" if is_measured else "estimated"
    update = {
        "step_seconds": epoch_seconds / epoch_steps(workload, placement),
        "epoch_seconds": epoch_seconds,
        "epoch_joules": None if watts is None else watts * epoch_seconds,
        "samples_per_second": prediction.samples_per_second * prediction.epoch_seconds / epoch_seconds,
        "step_seconds_source": source,
        "step_seconds_interval": measurement.step_seconds_interval
        if is_measured
        else _scaled(prediction.step_seconds_interval, slower),
        "energy_source": source if watts is not None else "unavailable",
    }
    if is_measured:
        update |= {"memory_bytes": measurement.memory_bytes, "memory_source": "measured", "parts": {}}
    changes = {"placement": placement, "prediction": prediction.model_copy(update=update)}
    return candidate.model_copy(update=changes)


def _capped_watts(candidate: Candidate, example: _Example) -> float | None:
    """Return the candidate's watts under the limit, reduced by the factor measured on the example."""
    own, without = _mean_watts(candidate), _mean_watts(example.without)
    if own is None or not without or example.measurement.mean_watts is None:
        return None
    return own * min(1.0, example.measurement.mean_watts / without)


def _mean_watts(candidate: Candidate) -> float | None:
    joules = candidate.prediction.epoch_joules
    return None if joules is None else joules / candidate.prediction.epoch_seconds


def _scaled(interval: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    return None if interval is None else (interval[0] * factor, interval[1] * factor)
