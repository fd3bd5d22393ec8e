"""Correction of the cost model's errors, learned from past runs, with its uncertainty.

The cost model's errors repeat: the same kernels, batch sizes and threads give similar errors in every training job. A
Gaussian process therefore learns the logarithm of measured over predicted step seconds. Its features are known before a
step runs (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapters 2 and 5). Near observations
the correction is precise. Far from them the prediction returns to the cost model and its own interval.
"""

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from shunter.frozen import Frozen
from shunter.hardware.cost.cost_model import COLD_LOG_DEVIATION, QUANTILE_95, interval, log_deviation
from shunter.hardware.cost.error_process import ErrorProcess, Scales
from shunter.hardware.types import Placement, Prediction, Workload

# Standard deviation of log step seconds between runs of one configuration on a quiet machine.
SMALLEST_LOG_NOISE = 0.02
LOG_NOISE = 0.1  # noise of short probes, until there are enough of them to fit the noise
SMALLEST_LOG_SIZE = 0.07  # lower bound of the standard deviation of the learnable errors
PART_NAMES = ("dense", "embedding", "communication", "input", "overhead")
FEWEST_FOR_SCALES = 12  # Fewer observations keep the default hyperparameters, because a fit would overfit.
# All inputs share one length scale. With one scale for each input, a few hundred runs of a few models are overfitted,
# and new models are predicted worse than without any correction. In the prior, half of the cost model's variance is
# common to all steps and half is specific to each step.
PRIOR_SCALES = Scales(common=COLD_LOG_DEVIATION**2 / 2, own=COLD_LOG_DEVIATION**2 / 2, length=1.5, noise=LOG_NOISE**2)
LEAST_SCALES = Scales(common=1e-3, own=SMALLEST_LOG_SIZE**2, length=0.5, noise=SMALLEST_LOG_NOISE**2)
LARGEST_SCALES = Scales(common=0.5, own=1.0, length=10.0, noise=0.3**2)
FEWEST_MODELS = 3  # fewest models for the leave-one-model-out estimate of a new model's error


class StepObservation(Frozen):
    """Measured step time of one finished training job or probe, with the cost model's uncorrected prediction."""

    workload: Workload
    placement: Placement
    accelerator_model: str = Field(description="Product name of the accelerator.")
    host: str = Field(description="Fingerprint of the kind of machine, which is equal for equal machines.")
    machine: str = Field(
        default="", description="Id of the machine; empty if the record names only the kind of machine."
    )
    predicted_seconds: float = Field(
        gt=0, description="Step time that the uncorrected cost model predicts, in seconds."
    )
    measured_seconds: float = Field(gt=0)
    measured_at: str = Field(description="Time of the measurement, in UTC and ISO 8601.")
    parts: dict[str, float] = Field(default={}, description="Predicted seconds of each part of the step, if known.")
    log_deviation: float = Field(
        default=0.0,
        ge=0,
        description="Standard deviation of this observation's additional noise, in log seconds.",
    )
    compiled: bool = Field(
        default=False, description="Whether the step was compiled by torch.compile; the cost model ignores this."
    )
    steps: int | None = Field(default=None, description="Number of measured steps; None if unknown.")
    measured_interval: tuple[float, float] | None = Field(
        default=None, description="90 % interval of the step times of a probe, in seconds; None if unknown."
    )
    memory_bytes: int | None = Field(
        default=None, description="Peak memory during the measurement, in bytes; None if unknown."
    )
    mean_watts: float | None = Field(
        default=None,
        gt=0,
        description="Mean power during the measurement, in watts, if a counter or sensor measured it; never an "
        "estimate.",
    )


class Residual:
    """Learned correction of predictions by observed step times; made by `fit`.

    Attributes:
        observations: Number of observations used in the fit.
    """

    def __init__(
        self,
        process: ErrorProcess | None,
        accelerators: Sequence[str],
        observations: int,
        workloads: Sequence[Workload] = (),
    ) -> None:
        self._process = process
        self._accelerators = tuple(accelerators)
        self.observations = observations
        models = [_model_of(workload) for workload in workloads]
        self._models = frozenset(models)
        self._new_model_scale = 1.0 if process is None else _left_out_scale(process, models)

    @classmethod
    def fit(cls, observations: Sequence[StepObservation], *, compiled: bool = False) -> "Residual":
        """Fit the correction to past steps; without observations, step times stay unchanged and intervals stay wide.

        Args:
            observations: Observations of any workloads, placements and accelerators, in any order.
            compiled: Whether to predict compiled steps. Compiled and uncompiled steps are learned separately.
        """
        observations = [observation for observation in observations if observation.compiled == compiled]
        if not observations:
            return cls(None, (), 0)
        from threadpoolctl import threadpool_limits

        accelerators = sorted({observation.accelerator_model for observation in observations})
        inputs = np.array(
            [
                _features(one.workload, one.placement, one.predicted_seconds, one.parts)
                + [float(one.accelerator_model == known) for known in accelerators]
                for one in observations
            ]
        )
        targets = np.log([observation.measured_seconds / observation.predicted_seconds for observation in observations])
        deviations = np.array([observation.log_deviation for observation in observations])
        bounds = (LEAST_SCALES, LARGEST_SCALES) if len(observations) >= FEWEST_FOR_SCALES else None
        # Matrices of a few hundred rows gain nothing from threads, and slow down if other processes use the cores.
        with threadpool_limits(1):
            process = ErrorProcess.fit(inputs, targets, deviations, PRIOR_SCALES, bounds)
        return cls(process, accelerators, len(observations), [observation.workload for observation in observations])

    def correct(
        self, workload: Workload, placement: Placement, prediction: Prediction, accelerator_model: str | None = None
    ) -> Prediction:
        """Return the prediction with corrected times and the 90 % interval of the step time.

        Args:
            workload: Demand of the training.
            placement: Placement of the training.
            prediction: The cost model's uncorrected prediction; a measured prediction is returned unchanged.
            accelerator_model: Vendor's name of the accelerator; None for the accelerator name of the placement.
        """
        return self.correct_all(workload, [(placement, prediction, accelerator_model or placement.accelerator)])[0]

    def correct_all(
        self, workload: Workload, predictions: Sequence[tuple[Placement, Prediction, str]]
    ) -> list[Prediction]:
        """Correct many predictions at once, each given as (placement, prediction, accelerator model); see `correct`."""
        if not predictions:
            return []
        means, deviations = self._log_ratios(workload, predictions)
        return [
            prediction if prediction.step_seconds_source == "measured" else scaled(prediction, mean, deviation)
            for (_, prediction, _), mean, deviation in zip(predictions, means, deviations, strict=True)
        ]

    def _log_ratios(
        self, workload: Workload, predictions: Sequence[tuple[Placement, Prediction, str]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation, `[predictions]` each, of log(measured / predicted)."""
        own = np.array([log_deviation(prediction) for _, prediction, _ in predictions])
        if self._process is None:
            return np.zeros(len(predictions)), own
        inputs = np.array(
            [
                _features(workload, placement, prediction.step_seconds, prediction.parts)
                + [float(model == known) for known in self._accelerators]  # all zeros for an unknown accelerator
                for placement, prediction, model in predictions
            ]
        )
        means, deviations = self._process.predict(inputs)
        # Observations of other accelerators never narrow the interval of an accelerator without observations.
        unknown = np.array([model not in self._accelerators for _, _, model in predictions])
        deviations = np.where(unknown, np.maximum(deviations, own), deviations)
        return means, deviations if _model_of(workload) in self._models else self._new_model_scale * deviations


def _model_of(workload: Workload) -> tuple[float, ...]:
    """Return the features that identify a model, independent of the size of the data."""
    return (
        workload.matmul_flops_per_sample,
        workload.lookups_per_sample,
        workload.lookup_bytes_per_sample,
        workload.parameter_bytes,
    )


def _left_out_scale(process: ErrorProcess, models: Sequence[tuple[float, ...]]) -> float:
    """Return the factor by which errors of a model without observations exceed the expected deviation; at least 1.

    Each model is left out in turn, in closed form (Rasmussen and Williams, section 5.4.2, by blocks instead of single
    points). The factor is the 90 % quantile of the ratios of errors to predicted deviations, divided by the same
    quantile of a normal distribution.
    """
    from scipy.linalg import cho_solve

    groups = [np.flatnonzero([one == model for one in models]) for model in dict.fromkeys(models)]
    if len(groups) < FEWEST_MODELS:
        return 1.0
    inverse = cho_solve((process.factor, True), np.eye(len(models)))
    ratios = []
    for group in groups:
        covariance = np.linalg.inv(inverse[np.ix_(group, group)])
        ratios += list(np.abs(covariance @ process.alpha[group]) / np.sqrt(np.diag(covariance)))
    return max(1.0, float(np.quantile(ratios, 0.9)) / QUANTILE_95)


def _features(
    workload: Workload, placement: Placement, predicted_seconds: float, parts: dict[str, float]
) -> list[float]:
    """Return the features that determine the cost model's error, mostly logarithms scaled to about one."""
    batch = placement.batch_size
    return [
        math.log(batch) / 3,
        math.log(placement.threads),
        float(placement.precision == "bf16"),
        math.log(placement.processes),
        math.log(predicted_seconds) / 3,
        math.log1p(workload.matmul_flops_per_sample) / 3,
        math.log1p(workload.lookup_bytes_per_sample) / 3,
        math.log1p(workload.lookups_per_sample) / 3,
        math.log1p(workload.parameter_bytes) / 5,
        *(parts.get(name, 0.0) / predicted_seconds for name in PART_NAMES),
    ]


def scaled(prediction: Prediction, log_ratio: float, deviation: float) -> Prediction:
    """Multiply the predicted times by `exp(log_ratio)` and set the interval; power stays the same."""
    ratio = math.exp(log_ratio)
    step_seconds = prediction.step_seconds * ratio
    return prediction.model_copy(
        update={
            "step_seconds": step_seconds,
            "step_seconds_interval": interval(step_seconds, deviation),
            "epoch_seconds": prediction.epoch_seconds * ratio,
            "epoch_joules": None if prediction.epoch_joules is None else prediction.epoch_joules * ratio,
            "samples_per_second": prediction.samples_per_second / ratio,
            "parts": {name: seconds * ratio for name, seconds in prediction.parts.items()},
        }
    )
