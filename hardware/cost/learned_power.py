"""Watts of trainings on one accelerator, learned from those that a counter or sensor has measured.

The linear `PowerModel` knows rest, cores, arithmetic and traffic. What it misses repeats: a training draws nearly what
it drew at the neighbouring batch size, thread count or power limit, and other trainings on the same accelerator err
alike. So the logarithm of measured over modelled watts is learned as a Gaussian process (Rasmussen and Williams,
"Gaussian Processes for Machine Learning", 2006, chapter 2; the error by leaving one out by section 5.4.2). It is a sum
of three: what all trainings on the accelerator share, what trainings of like intensity share, and what one training
keeps from placement to placement. Far from every measurement the linear model remains.

Only measured power is learned from. An estimate follows from the model itself, and would confirm it.
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

# Standard deviations of the three parts and of the noise from run to run, in logarithms of watts, and the distances at
# which two placements have e^-1/2 in common. Set on what is known of devices, on no table: a design power is 30 % off
# what a training draws, intensities explain half of that, and a placement's neighbours agree within a tenth.
COMMON, INTENSITY, OWN, NOISE = 0.3, 0.15, 0.15, 0.03
# From so many measurements on, those of the second and third part follow from the measurements themselves: the pair
# under which these are likeliest (chapter 5.4.1).
FEWEST_FOR_PARTS = 12
INTENSITIES, OWNS = (0.05, 0.15, 0.45), (0.1, 0.2, 0.4, 0.8)
SHARE_LENGTH, LIMIT_LENGTH, CORES_LENGTH, BATCH_LENGTH, RATE_LENGTH = 0.3, 0.3, 2.0, 2.0, 1.0
FEWEST_FOR_LINE = 8  # Below, the profile's two points are the linear model.


class TrainingLoad(Load):
    """What one training asks of an accelerator at a placement.

    Attributes:
        workload: Name of what is trained, equal for placements of one training.
        batch_size: Samples a step.
        samples_per_second: Rate of training.
        is_half: Whether matrices are multiplied in bf16.
        limit_watts: Power limit in force; None where it is the device's own.
    """

    workload: str = ""
    batch_size: int = 1
    samples_per_second: float = 1.0
    is_half: bool = False
    limit_watts: float | None = None


class MeasuredLoad(TrainingLoad):
    """The same with the mean power that was measured meanwhile."""

    watts: float


def load_of(workload: Workload, placement: Placement, profile: HardwareProfile, step_seconds: float) -> TrainingLoad:
    """What a training asks of the accelerator when a step takes so long.

    Args:
        workload: Demand of the training.
        placement: Placement of the training.
        profile: Profile of the accelerator there.
        step_seconds: Wall clock of a step.
    """
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
    """Watts of trainings on one accelerator; made by `fit`.

    Attributes:
        measurements: Number of measured loads that it has learned from.
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
        # Matrices of a few hundred rows gain nothing from threads, and lose much where others use the cores.
        with threadpool_limits(1):
            for pair in pairs:
                inverse = np.linalg.inv(_mixed(kernels, pair) + NOISE**2 * np.eye(len(targets)))
                likelihood = np.linalg.slogdet(inverse)[1] - targets @ inverse @ targets
                if likelihood > likeliest:
                    likeliest, self._parts, self._inverse = likelihood, pair, inverse
            self._weights = self._inverse @ targets

    @classmethod
    def fit(cls, profile: HardwareProfile, loads: Sequence[MeasuredLoad] = ()) -> "LearnedPower":
        """Learn from measured loads on the accelerator; without any, the profile's own two points remain.

        Args:
            profile: Profile of the accelerator.
            loads: Loads with measured power; those above and below what could be true are left to the caller.
        """
        return cls(profile, _line(profile, loads), loads)

    def watts(self, load: TrainingLoad) -> float | None:
        """Mean power expected; None where neither the profile nor a measurement says anything."""
        if self._line is None and not self._loads:
            return None
        modelled = self._modelled(load)
        if not self._loads:
            return modelled
        covariance = _mixed(self._kernels([load], self._loads), self._parts)[0]
        return modelled * math.exp(float(covariance @ self._weights))

    def leave_one_out_errors(self) -> NDArray[np.float64]:
        """Relative error of each measurement by all the others, in their order."""
        if not self._loads:
            return np.zeros(0)
        return np.abs(np.expm1(-self._weights / np.diag(self._inverse)))

    def leave_one_out_error(self) -> float | None:
        """Median of `leave_one_out_errors`; None below three measurements."""
        return float(np.median(self.leave_one_out_errors())) if len(self._loads) >= 3 else None

    def _modelled(self, load: TrainingLoad) -> float:
        """Watts by the linear model, no more than the limit in force."""
        if self._line is None:
            watts = float(np.median([known.watts for known in self._loads]))
        else:
            watts = self._line.watts(load.busy_cores, load.flops_per_second, load.bytes_per_second)
        return watts if load.limit_watts is None else min(watts, load.limit_watts)

    def _kernels(
        self, rows: Sequence[TrainingLoad], columns: Sequence[TrainingLoad]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What two loads have in common by their intensities, and beyond as placements of one training."""
        intensity = _kernel(self._intensities(rows), self._intensities(columns))
        names = [np.array([load.workload for load in loads]) for loads in (rows, columns)]
        same = names[0][:, None] == names[1][None, :]
        return intensity, same * intensity * _kernel(_sizes(rows), _sizes(columns))

    def _intensities(self, loads: Sequence[TrainingLoad]) -> NDArray[np.float64]:
        """How busy each part of the accelerator is, as shares of what it can do, in lengths."""
        rates = self._profile.matmul_flops_per_second
        highest = self._highest_watts()
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

    def _highest_watts(self) -> float:
        """At full work, by the profile, or the most that was measured."""
        busy = self._profile.busy_watts
        return busy.value if busy is not None else max((load.watts for load in self._loads), default=1.0)


def with_learned_joules(prediction: Prediction, load: TrainingLoad, power: LearnedPower) -> Prediction:
    """The prediction at the power that was learned; a measured energy stays.

    Args:
        prediction: What a placement is expected to take.
        load: The same placement's load at the predicted step time.
        power: What was learned of its accelerator.
    """
    watts = power.watts(load)
    if prediction.energy_source == "measured" or watts is None:
        return prediction
    joules = watts * prediction.epoch_seconds
    return prediction.model_copy(update={"epoch_joules": joules, "energy_source": "estimated"})


def _line(profile: HardwareProfile, loads: Sequence[MeasuredLoad]) -> PowerModel | None:
    """The linear model through the profile's two points, and through the measurements once there are enough."""
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
    """Covariance of the three parts together."""
    return COMMON**2 + parts[0] ** 2 * kernels[0] + parts[1] ** 2 * kernels[1]


def _sizes(loads: Sequence[TrainingLoad]) -> NDArray[np.float64]:
    return np.array(
        [[math.log2(load.batch_size) / BATCH_LENGTH, math.log(load.samples_per_second) / RATE_LENGTH] for load in loads]
    )


def _kernel(rows: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared exponential of the distances."""
    distances = ((rows[:, None, :] - columns[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-distances / 2)
