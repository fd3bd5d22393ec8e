"""Cost model of a placement: time by `StepModel`, power by `PowerModel`, memory by `predict_memory_bytes`.

Every figure is an estimate from the machine's measured rates. `shunter.hardware.cost.residual` corrects the estimates
by past runs.
"""

import math

from shunter.hardware.cost.memory_model import predict_memory_bytes
from shunter.hardware.cost.power_model import PowerModel, busy_cores
from shunter.hardware.cost.step_model import StepModel
from shunter.hardware.types import HardwareProfile, Placement, Prediction, Workload

# Standard deviation of log(measured / predicted): two steps in three are within 40 % of the prediction for a measured
# machine, and within a factor of two for a catalogue profile.
COLD_LOG_DEVIATION = 0.35
CATALOGUE_LOG_DEVIATION = 0.7
QUANTILE_95 = 1.645  # Half width of a symmetric 90 % interval of a normal distribution, in standard deviations.


class CostModel:
    """Cost model of one accelerator; create it once to predict many placements.

    Args:
        profile: Measured rates and power of the accelerator, or a catalogue's (`shunter.hardware.catalogue.offers`).
        power: Power model of the accelerator; if None, the model is fitted to the profile.
    """

    def __init__(self, profile: HardwareProfile, power: PowerModel | None = None) -> None:
        self.profile = profile
        self.step_model = StepModel(profile)
        self.power = power or PowerModel.of(profile)
        measured = profile.copy_bytes_per_second.source == "measured"
        self._log_deviation = COLD_LOG_DEVIATION if measured else CATALOGUE_LOG_DEVIATION

    def predict(self, workload: Workload, placement: Placement, process_bytes: int = 0) -> Prediction:
        """Predict time, energy and memory of one epoch of `workload` at `placement`; every figure is an estimate."""
        assert placement.accelerator == self.profile.accelerator.name, "the profile belongs to another accelerator"
        parts = self.step_model.parts(workload, placement)
        epoch_seconds = epoch_steps(workload, placement) * parts.total
        # A GPU idles while the host launches kernels or reads a batch, and training recommenders is mostly made of such
        # steps. Two runs, on an H100 and an H200, were checked by hand. Full power was 4.5 and 2.9 times the power that
        # the training run drew; the power estimated with this share was 2.4 and 0.75 times the measured power.
        is_gpu = self.profile.accelerator.kind == "cuda"
        watts = self.watts(placement, (parts.dense + parts.embedding) / parts.total if is_gpu else 1.0)
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
            parts=vars(parts),
        )

    def watts(self, placement: Placement, share_at_work: float = 1.0) -> float | None:
        """Return the mean power during training of all the placement's devices, in watts; None if unknown.

        The accelerator computes in `share_at_work` of the time, and draws idle power in the remaining time.
        """
        if self.power is None:
            return None
        devices = placement.processes if self.profile.accelerator.kind == "cuda" else 1
        return devices * self.power.watts(busy_cores(placement, self.profile) * share_at_work)


def predict(workload: Workload, placement: Placement, profile: HardwareProfile, process_bytes: int = 0) -> Prediction:
    """Predict one epoch of `workload` at `placement`; every figure is an estimate.

    Args:
        workload: Demand of one sample and of one step.
        placement: Placement on the accelerator that `profile` describes.
        profile: Measured rates and power of the accelerator, or a catalogue's (`shunter.hardware.catalogue.offers`).
        process_bytes: Memory that the process holds before training, counted for a CPU.
    """
    return CostModel(profile).predict(workload, placement, process_bytes)


def interval(seconds: float, deviation: float) -> tuple[float, float]:
    """Return the 90 % interval of a time whose logarithm is normal with this standard deviation."""
    width = math.exp(QUANTILE_95 * deviation)
    return seconds / width, seconds * width


def log_deviation(prediction: Prediction) -> float:
    """Return the standard deviation of the log of the step seconds, from the 90 % interval of the prediction.

    Without an interval, this is `COLD_LOG_DEVIATION`.
    """
    if prediction.step_seconds_interval is None:
        return COLD_LOG_DEVIATION
    low, high = prediction.step_seconds_interval
    return math.log(high / low) / (2 * QUANTILE_95)


def epoch_steps(workload: Workload, placement: Placement) -> int:
    """Return the number of optimiser steps in one pass over the training set."""
    return math.ceil(workload.train_samples / placement.batch_size)
