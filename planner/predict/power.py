"""Whether a GPU should run below its power limit: measured at the leading placement, where the operator permits it.

Dynamic power grows faster than the clock, so that a lower limit often saves more energy than it costs time (You, Chung
and Chowdhury, "Zeus", NSDI 2023, section 4.2, which profiles each limit for some steps as is done here).
"""

from collections.abc import Sequence

import numpy as np

from hardware.types import Workload
from planner.assessment import Candidate
from planner.predict.correct import MeasurePlacement, corrected
from planner.rank.totals import Terms
from shunter.errors import HardwareError
from shunter.settings import Settings

LIMITS_TRIED = 5
PROBE_STEPS = 50  # a power limit takes effect within some tens of milliseconds


def wants_power_limits(leader: Candidate, terms: Terms) -> bool:
    """Whether a lower limit can help at all, and the operator permits it."""
    concerns_power = terms.weights.energy > 0 or terms.limits.max_kwh is not None or terms.limits.max_watts is not None
    return (
        Settings().allow_power_limit
        and concerns_power
        and leader.placement.node is None
        and leader.placement.accelerator.startswith("cuda")
    )


def limit_range_watts(accelerator: str) -> tuple[float, float] | None:
    """The limits that the device takes; None where it cannot be asked."""
    from hardware.devices.power_limit import GpuPowerLimit

    try:
        return GpuPowerLimit(accelerator).limit_range_watts()
    except HardwareError:
        return None


def power_limited(
    leader: Candidate,
    range_watts: tuple[float, float] | None,
    workload: Workload,
    measure: MeasurePlacement,
) -> list[Candidate]:
    """The leader at some lower power limits, each measured; those whose power was not measured tell nothing.

    Args:
        leader: The best candidate, at the device's own limit.
        range_watts: Limits that the device takes; None tries none.
        workload: Demand of the training.
        measure: Measurement of a number of steps at a placement; gives None when the memory did not suffice.
    """
    found = []
    for watts in _limits(range_watts):
        placement = leader.placement.model_copy(update={"power_limit_watts": watts})
        try:
            measurement = measure(placement, PROBE_STEPS)
        except HardwareError:
            break  # without the rights, no other limit will do either
        if measurement is not None and measurement.watts_measured:
            candidate = leader.model_copy(update={"placement": placement})
            found += corrected([candidate], {placement: measurement}, workload)
    return found


def _limits(range_watts: tuple[float, float] | None) -> Sequence[float]:
    """Evenly from just below the highest to the lowest; the highest is what the leader has run at."""
    if range_watts is None:
        return []
    lowest, highest = range_watts
    return [round(float(watts)) for watts in np.linspace(highest, lowest, LIMITS_TRIED + 1)[1:]]
