"""Predicts what a placement takes: time by `StepModel`, power by `PowerModel`, memory by `predict_memory_bytes`.

Every figure is an estimate of a machine at its measured rates. What runs teach on top of it is
`shunter.hardware.cost.residual`'s.
"""

import math

from shunter.hardware.cost.memory_model import predict_memory_bytes
from shunter.hardware.cost.power_model import PowerModel, busy_cores
from shunter.hardware.cost.step_model import StepModel, StepParts
from shunter.hardware.types import HardwareProfile, Placement, Prediction, Workload

# Standard deviation of log(measured / predicted): two steps in three are within 40 % of the prediction for a measured
# machine, and within a factor of two of that for a catalogue's.
COLD_LOG_DEVIATION = 0.35
CATALOGUE_LOG_DEVIATION = 0.7
QUANTILE_95 = 1.645  # A symmetric interval of 90 % of a normal distribution ends here, in standard deviations.


class CostModel:
    """Predicts placements on one accelerator; for many of them, make it once.

    Args:
        profile: Measured rates and power of the accelerator, or a catalogue's (`shunter.hardware.catalogue.offers`).
        power: Power of the accelerator; if None, what the profile tells.
    """

    def __init__(self, profile: HardwareProfile, power: PowerModel | None = None) -> None:
        self.profile = profile
        self.step_model = StepModel(profile)
        self.power = power or PowerModel.of(profile)
        measured = profile.copy_bytes_per_second.source == "measured"
        self._log_deviation = COLD_LOG_DEVIATION if measured else CATALOGUE_LOG_DEVIATION

    def predict(self, workload: Workload, placement: Placement, process_bytes: int = 0) -> Prediction:
        """What one epoch of `workload` is expected to take at `placement`; see `predict`."""
        assert placement.accelerator == self.profile.accelerator.name, "the profile is another accelerator's"
        parts = self.step_model.parts(workload, placement)
        epoch_seconds = epoch_steps(workload, placement) * parts.total
        watts = self.watts(placement, self._share_at_work(parts))
        return Prediction(
            step_seconds=parts.total,
            epoch_seconds=epoch_seconds,
            epoch_joules=None if watts is None else watts * epoch_seconds,
            memory_bytes=predict_memory_bytes(workload, placement, self.profile, process_bytes),
            samples_per_second=workload.train_samples / epoch_seconds,
            step_seconds_source="estimated",
            energy_source="unavailable" if watts is None else "estimated",
            memory_source="estimated",
            step_seconds_interval=interval(parts.total, self._log_deviation),
            parts={
                "dense": parts.dense,
                "embedding": parts.embedding,
                "communication": parts.communication,
                "input": parts.input,
                "overhead": parts.overhead,
            },
        )

    def watts(self, placement: Placement, share_at_work: float = 1.0) -> float | None:
        """Mean power while training, of all the devices that the placement takes; None when unknown.

        Args:
            placement: Placement on the accelerator.
            share_at_work: Share of the time in which it computes; else it draws what it draws at rest.
        """
        if self.power is None:
            return None
        devices = placement.processes if self.profile.accelerator.kind == "cuda" else 1
        return devices * self.power.watts(busy_cores(placement, self.profile) * share_at_work)

    def _share_at_work(self, parts: StepParts) -> float:
        """A GPU rests while the host launches its kernels or reads a batch; the threads of a processor do all that.

        A training of recommendations is mostly of such steps: on an H100 and an H200, two runs looked at by hand, full
        power was 4.5 and 2.9 times what the first training really drew, and this is 2.4 and .75 times.
        """
        if self.profile.accelerator.kind != "cuda":
            return 1.0
        return (parts.dense + parts.embedding) / parts.total


def predict(workload: Workload, placement: Placement, profile: HardwareProfile, process_bytes: int = 0) -> Prediction:
    """What one epoch of `workload` is expected to take at `placement`; every figure is an estimate.

    Args:
        workload: Demand of one sample and of one step.
        placement: Placement on the accelerator that `profile` describes.
        profile: Measured rates and power of the accelerator, or a catalogue's (`shunter.hardware.catalogue.offers`).
        process_bytes: Memory that the process holds before training, counted for a CPU.
    """
    return CostModel(profile).predict(workload, placement, process_bytes)


def interval(seconds: float, deviation: float) -> tuple[float, float]:
    """What holds a figure with 90 % probability, whose logarithm has this standard deviation."""
    width = math.exp(QUANTILE_95 * deviation)
    return seconds / width, seconds * width


def log_deviation(prediction: Prediction) -> float:
    """Inverse of `interval`; that of a measured machine where the prediction has none."""
    if prediction.step_seconds_interval is None:
        return COLD_LOG_DEVIATION
    low, high = prediction.step_seconds_interval
    return math.log(high / low) / (2 * QUANTILE_95)


def epoch_steps(workload: Workload, placement: Placement) -> int:
    """Optimiser steps of one pass over the training part."""
    return math.ceil(workload.train_samples / placement.batch_size)
