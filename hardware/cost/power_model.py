"""Linear power model of an accelerator, fitted to measured samples of its power.

    watts = idle + a busy cores + b FLOP/s + c bytes/s

Idle power is constant. Each busy core (or a GPU as a whole), arithmetic and memory traffic add their own power. This is
the event-based linear model of Bellosa, "The Benefits of Event-Driven Energy Accounting", 2000, and of Bircher and
John, "Complete System Power Estimation", ISPASS 2007. No coefficient is negative.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from shunter.errors import HardwareError
from shunter.frozen import Frozen
from shunter.hardware.types import HardwareProfile, Placement, Source


class Load(Frozen):
    """Utilisation of an accelerator: busy cores, arithmetic and memory traffic."""

    busy_cores: float = Field(
        ge=0, description="Mean number of busy cores; of a GPU, 1 if it is busy and 0 if it is idle."
    )
    flops_per_second: float = 0.0
    bytes_per_second: float = 0.0


class PowerSample(Load):
    """Mean power over a period of constant load."""

    watts: float = Field(gt=0)
    source: Source


class PowerModel(Frozen):
    """Power in watts as a linear function of the load.

    Attributes:
        idle_watts: Idle power.
        watts_per_core: Power of each busy core.
        joules_per_flop: Energy of the arithmetic.
        joules_per_byte: Energy of the memory traffic.
        deviation_watts: Root mean square error over the samples; None if there are no more samples than coefficients.
        source: Source of the samples if all share it, else `estimated`.
    """

    idle_watts: float
    watts_per_core: float
    joules_per_flop: float = 0.0
    joules_per_byte: float = 0.0
    deviation_watts: float | None = None
    source: Source

    @classmethod
    def of(cls, profile: HardwareProfile) -> "PowerModel | None":
        """Return the model of a profile's idle and full-load power; None if the profile lacks one of them."""
        if profile.idle_watts is None or profile.busy_watts is None:
            return None
        cores = profile.rated_cores
        return cls.fit(
            [
                PowerSample(watts=profile.idle_watts.value, busy_cores=0, source=profile.idle_watts.source),
                PowerSample(watts=profile.busy_watts.value, busy_cores=cores, source=profile.busy_watts.source),
            ]
        )

    @classmethod
    def fit(cls, samples: Sequence[PowerSample]) -> "PowerModel":
        """Fit samples of different loads by non-negative least squares.

        Args:
            samples: At least two samples; arithmetic and traffic are fitted only from five samples on.

        Raises:
            HardwareError: the samples have fewer than two different numbers of busy cores.
        """
        from scipy.optimize import nnls

        if len(samples) < 2 or len({sample.busy_cores for sample in samples}) < 2:
            raise HardwareError(
                f"A power model needs samples at two different loads or more, but got {len(samples)} "
                f"samples at {len({sample.busy_cores for sample in samples})} loads: measure at idle and "
                "at full load."
            )
        columns = [
            [1.0] * len(samples),
            [sample.busy_cores for sample in samples],
            [sample.flops_per_second for sample in samples],
            [sample.bytes_per_second for sample in samples],
        ]
        design = np.array(columns).T
        used = design.shape[1] if len(samples) > design.shape[1] else 2
        watts = np.array([sample.watts for sample in samples])
        scale = np.maximum(design.max(axis=0), 1e-30)[:used]
        found, distance = nnls(design[:, :used] / scale, watts)
        coefficients = np.zeros(4)
        coefficients[:used] = found / scale
        sources: list[Source] = [sample.source for sample in samples]
        return cls(
            idle_watts=float(coefficients[0]),
            watts_per_core=float(coefficients[1]),
            joules_per_flop=float(coefficients[2]),
            joules_per_byte=float(coefficients[3]),
            deviation_watts=float(distance / np.sqrt(len(samples) - used)) if len(samples) > used else None,
            source=sources[0] if len(set(sources)) == 1 else "estimated",
        )

    def watts(self, busy_cores: float, flops_per_second: float = 0.0, bytes_per_second: float = 0.0) -> float:
        """Return the mean power in watts at a constant load."""
        return (
            self.idle_watts
            + self.watts_per_core * busy_cores
            + self.joules_per_flop * flops_per_second
            + self.joules_per_byte * bytes_per_second
        )


def busy_cores(placement: Placement, profile: HardwareProfile) -> float:
    """Return the cores that a training job keeps busy: its threads, which wait by spinning; a GPU counts as one."""
    if profile.accelerator.kind == "cuda":
        return 1.0
    return float(min(placement.threads, profile.accelerator.cores))
