"""Learned power: watts of training jobs on one accelerator, learned from jobs measured by a counter or sensor.

The linear `PowerModel` covers idle power, cores, arithmetic and traffic. Its errors repeat. A training job draws nearly
the same power at the neighbouring batch size, thread count or power limit. The model's errors are also alike across
training jobs on the same accelerator. The logarithm of measured over modelled watts is therefore learned as a Gaussian
process (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapter 2; leave-one-out errors by
section 5.4.2). The process is a sum of three terms: a constant of the accelerator, a term shared by jobs of similar
intensity, and a term of one job across its placements. Far from every measurement the prediction is the linear model's.

Only measured power is used for learning, because estimates come from the model itself.
"""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from shunter.errors import HardwareError
from shunter.hardware.cost.power_model import Load, PowerModel, PowerSample, busy_cores
from shunter.hardware.types import HardwareProfile, Placement, Prediction, Workload

# Standard deviations of the three terms and of the run-to-run noise, in log watts. The lengths below are the distances
# at which the correlation of two placements is e^-1/2. Set by general knowledge of devices, not fitted: design power is
# 30 % off the power of a training run, intensity explains half of that, and neighbouring placements agree within 10 %.
COMMON, INTENSITY, OWN, NOISE = 0.3, 0.15, 0.15, 0.03
# From this number of measurements on, the deviations of the second and third term are the pair that maximises the
# likelihood of the measurements (Rasmussen and Williams, section 5.4.1).
FEWEST_FOR_PARTS = 12
INTENSITIES, OWNS = (0.05, 0.15, 0.45), (0.1, 0.2, 0.4, 0.8)
SHARE_LENGTH, LIMIT_LENGTH, CORES_LENGTH, BATCH_LENGTH, RATE_LENGTH = 0.3, 0.3, 2.0, 2.0, 1.0
FEWEST_FOR_LINE = 8  # With fewer measurements, the linear model is fitted to the profile's two points alone.


class TrainingLoad(Load):
    """Load that one training job puts on an accelerator at a placement.

    Attributes:
        workload: Identifier of the training job's model and data, equal for all placements of the job.
        batch_size: Samples per step.
        samples_per_second: Rate of training.
        is_half: Whether matrix products are computed in bf16.
        limit_watts: Power limit in force; None for the device's default limit.
    """

    workload: str = ""
    batch_size: int = 1
    samples_per_second: float = 1.0
    is_half: bool = False
    limit_watts: float | None = None


class MeasuredLoad(TrainingLoad):
    """Training load with the mean power measured during the training."""

    watts: float


def load_of(workload: Workload, placement: Placement, profile: HardwareProfile, step_seconds: float) -> TrainingLoad:
    """Return the load that a training job puts on the accelerator at a given step time, in wall-clock seconds."""
    samples_per_second = placement.batch_size / step_seconds
    # Rows are read forward, and read and written by the update; activations are written forward and read backward.
    bytes_per_sample = (
        3 * workload.lookup_bytes_per_sample
        + 2 * workload.activation_bytes_per_sample
        + workload.input_bytes_per_sample
    )
    names = (workload.matmul_flops_per_sample, workload.lookups_per_sample, workload.parameter_bytes, workload.tables)
    return TrainingLoad(
        busy_cores=busy_cores(placement, profile),
        flops_per_second=workload.matmul_flops_per_sample * samples_per_second,
        bytes_per_second=bytes_per_sample * samples_per_second,
        workload=" ".join(f"{number:.6g}" for number in names),
        batch_size=placement.batch_size,
        samples_per_second=samples_per_second,
        is_half=placement.precision == "bf16",
        limit_watts=placement.power_limit_watts,
    )


class LearnedPower:
    """Power model of training jobs on one accelerator, corrected by measurements; made by `fit`.

    Attributes:
        measurements: Number of measured loads used in the fit.
    """

    def __init__(self, profile: HardwareProfile, line: PowerModel | None, loads: Sequence[MeasuredLoad]) -> None:
        self._profile, self._line, self._loads = profile, line, list(loads)
        self.measurements = len(loads)
        self._parts = INTENSITY, OWN
        self._inverse = np.zeros((0, 0))
        self._weights = np.zeros(0)
        if loads:
            self._learn(np.array([math.log(load.watts / self._modelled(load)) for load in loads]))

    def _learn(self, targets: NDArray[np.float64]) -> None:
        pairs = list(product(INTENSITIES, OWNS)) if len(targets) >= FEWEST_FOR_PARTS else [self._parts]
        likeliest = -math.inf
        kernels = self._kernels(self._loads, self._loads)
        # Matrices of a few hundred rows gain nothing from threads, and slow down if other processes use the cores.
        with threadpool_limits(1):
            for pair in pairs:
                inverse = np.linalg.inv(_mixed(kernels, pair) + NOISE**2 * np.eye(len(targets)))
                likelihood = np.linalg.slogdet(inverse)[1] - targets @ inverse @ targets
                if likelihood > likeliest:
                    likeliest, self._parts, self._inverse = likelihood, pair, inverse
            self._weights = self._inverse @ targets

    @classmethod
    def fit(cls, profile: HardwareProfile, loads: Sequence[MeasuredLoad] = ()) -> "LearnedPower":
        """Fit measured loads on the accelerator; without loads, the linear model of the profile's two points is used.

        Args:
            profile: Profile of the accelerator.
            loads: Loads with measured power; the caller removes implausible values.
        """
        return cls(profile, _line(profile, loads), loads)

    def watts(self, load: TrainingLoad) -> float | None:
        """Return the expected mean power in watts; None if neither the profile nor a measurement gives power."""
        if self._line is None and not self._loads:
            return None
        modelled = self._modelled(load)
        if not self._loads:
            return modelled
        covariance = _mixed(self._kernels([load], self._loads), self._parts)[0]
        return modelled * math.exp(float(covariance @ self._weights))

    def leave_one_out_errors(self) -> NDArray[np.float64]:
        """Return the relative error of each measurement, predicted from all other measurements, `[measurements]`."""
        if not self._loads:
            return np.zeros(0)
        return np.abs(np.expm1(-self._weights / np.diag(self._inverse)))

    def leave_one_out_error(self) -> float | None:
        """Return the median of `leave_one_out_errors`; None for fewer than three measurements."""
        return float(np.median(self.leave_one_out_errors())) if len(self._loads) >= 3 else None

    def _modelled(self, load: TrainingLoad) -> float:
        """Return the watts of the linear model, at most the power limit in force."""
        if self._line is None:
            watts = float(np.median([known.watts for known in self._loads]))
        else:
            watts = self._line.watts(load.busy_cores, load.flops_per_second, load.bytes_per_second)
        return watts if load.limit_watts is None else min(watts, load.limit_watts)

    def _kernels(
        self, rows: Sequence[TrainingLoad], columns: Sequence[TrainingLoad]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return two covariance kernels of loads, `[rows, columns]`: by utilisation, and within the same job."""
        intensity = _kernel(self._intensities(rows), self._intensities(columns))
        names = [np.array([load.workload for load in loads]) for loads in (rows, columns)]
        same = names[0][:, None] == names[1][None, :]
        return intensity, same * intensity * _kernel(_sizes(rows), _sizes(columns))

    def _intensities(self, loads: Sequence[TrainingLoad]) -> NDArray[np.float64]:
        """Return the utilisation of each part of the accelerator, in units of the length scales, `[loads, 5]`."""
        rates = self._profile.matmul_flops_per_second
        busy = self._profile.busy_watts
        highest = busy.value if busy else max((load.watts for load in self._loads), default=1.0)
        return np.array(
            [
                [
                    math.log2(max(load.busy_cores, 1.0)) / CORES_LENGTH,
                    load.flops_per_second / rates["fp32"].value / SHARE_LENGTH,
                    load.bytes_per_second / self._profile.copy_bytes_per_second.value / SHARE_LENGTH,
                    load.is_half,
                    min(1.0, (load.limit_watts or highest) / highest) / LIMIT_LENGTH,
                ]
                for load in loads
            ]
        )


def with_learned_joules(prediction: Prediction, load: TrainingLoad, power: LearnedPower) -> Prediction:
    """Return the prediction with energy at the learned power; measured energy stays unchanged."""
    watts = power.watts(load)
    if prediction.energy_source == "measured" or watts is None:
        return prediction
    joules = watts * prediction.epoch_seconds
    return prediction.model_copy(update={"epoch_joules": joules, "energy_source": "estimated"})


def _line(profile: HardwareProfile, loads: Sequence[MeasuredLoad]) -> PowerModel | None:
    """Return the linear model fitted to the profile's two points and, if there are enough, the measurements."""
    ends = PowerModel.of(profile)
    if ends is None or len(loads) < FEWEST_FOR_LINE:
        return ends
    cores = profile.rated_cores
    samples = [
        PowerSample(watts=load.watts, source="measured", **load.model_dump(include=set(Load.model_fields)))
        for load in loads
        if load.limit_watts is None
    ]
    if len(samples) < FEWEST_FOR_LINE:
        return ends
    rest = PowerSample(watts=ends.watts(0), busy_cores=0, source=ends.source)
    full = PowerSample(watts=ends.watts(cores), busy_cores=cores, source=ends.source)
    try:
        return PowerModel.fit([rest, full, *samples])
    except HardwareError:
        return ends


def _mixed(kernels: tuple[NDArray[np.float64], NDArray[np.float64]], parts: tuple[float, float]) -> NDArray[np.float64]:
    """Return the covariance of the sum of constant, intensity term and job term; `parts` are their deviations."""
    return COMMON**2 + parts[0] ** 2 * kernels[0] + parts[1] ** 2 * kernels[1]


def _sizes(loads: Sequence[TrainingLoad]) -> NDArray[np.float64]:
    return np.array(
        [[math.log2(load.batch_size) / BATCH_LENGTH, math.log(load.samples_per_second) / RATE_LENGTH] for load in loads]
    )


def _kernel(rows: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared exponential kernel, `[rows, columns]`."""
    distances = ((rows[:, None, :] - columns[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-distances / 2)
