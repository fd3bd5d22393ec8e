"""What past runs teach about the cost model's errors, with how sure they make us.

The cost model is wrong in ways that repeat: the same kernels, batch sizes and threads err alike from one training to
the next. So the logarithm of measured over predicted step seconds is learned as a Gaussian process (Rasmussen and
Williams, "Gaussian Processes for Machine Learning", 2006, chapters 2 and 5) over what is known of a step before it
runs. Near to what was observed the correction is sharp; far from it the process returns to the cost model as it is, and
to the width of its errors there.
"""

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from shunter.frozen import Frozen
from shunter.hardware.cost.cost_model import COLD_LOG_DEVIATION, QUANTILE_95, interval, log_deviation
from shunter.hardware.cost.error_process import ErrorProcess, Scales
from shunter.hardware.types import Placement, Prediction, Workload

# Step times of one configuration differ by as much from run to run on a quiet machine.
SMALLEST_LOG_NOISE = 0.02
LOG_NOISE = 0.1  # of short probes, until there are enough to tell
SMALLEST_LOG_SIZE = 0.07  # of the errors that can be learned
PART_NAMES = ("dense", "embedding", "communication", "input", "overhead")
FEWEST_FOR_SCALES = (
    12  # Below, size and scale of the errors stay what they are by default: so few points would be overfitted.
)
# One length scale serves all inputs: with one for each, a few hundred runs of a few models are overfitted, and models
# that were never run are predicted worse than without any correction. Before anything is learned, half of the cost
# model's variance is common to all steps, half is each one's own.
PRIOR_SCALES = Scales(common=COLD_LOG_DEVIATION**2 / 2, own=COLD_LOG_DEVIATION**2 / 2, length=1.5, noise=LOG_NOISE**2)
LEAST_SCALES = Scales(common=1e-3, own=SMALLEST_LOG_SIZE**2, length=0.5, noise=SMALLEST_LOG_NOISE**2)
LARGEST_SCALES = Scales(common=0.5, own=1.0, length=10.0, noise=0.3**2)
FEWEST_MODELS = 3  # of which leaving one out tells how far the next one may be off


class StepObservation(Frozen):
    """The step time of one finished training or probe, beside what the cost model had said of it."""

    workload: Workload
    placement: Placement
    accelerator_model: str = Field(description="What the vendor calls the accelerator.")
    host: str = Field(description="Fingerprint of the kind of machine.")
    machine: str = Field(default="", description="Which machine it was; empty in records that name its kind alone.")
    predicted_seconds: float = Field(gt=0, description="One step, by the cost model without any correction.")
    measured_seconds: float = Field(gt=0)
    measured_at: str = Field(description="UTC time, ISO 8601.")
    parts: dict[str, float] = Field(default={}, description="Seconds of `predicted_seconds` by part, where known.")
    log_deviation: float = Field(
        default=0.0, ge=0, description="Noise of this observation beyond that of its likes, in log seconds."
    )
    compiled: bool = Field(default=False, description="Whether the step was compiled, which the cost model knows not.")
    steps: int | None = Field(default=None, description="Steps that were measured; None when unknown.")
    measured_interval: tuple[float, float] | None = Field(
        default=None, description="Holds nine in ten of the steps of a probe; None when unknown."
    )
    memory_bytes: int | None = Field(default=None, description="Peak while it was measured; None when unknown.")
    mean_watts: float | None = Field(
        default=None, gt=0, description="Power meanwhile, where counters or sensors measured it; never an estimate."
    )


class Residual:
    """Corrects predictions by what was observed; made by `fit`.

    Attributes:
        observations: Number of observations that it has learned from.
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
        """Learn from past steps; without any, predictions stay as they are, in a wide interval.

        Args:
            observations: Observations of any workloads, placements and accelerators; the order does not matter.
            compiled: Whether to predict compiled steps: they teach nothing about the others, nor these about them.
        """
        observations = [observation for observation in observations if observation.compiled == compiled]
        if not observations:
            return cls(None, (), 0)
        from threadpoolctl import threadpool_limits

        accelerators = sorted({observation.accelerator_model for observation in observations})
        inputs = np.array(
            [
                [
                    *_features(
                        observation.workload, observation.placement, observation.predicted_seconds, observation.parts
                    ),
                    *_one_hot(observation.accelerator_model, accelerators),
                ]
                for observation in observations
            ]
        )
        targets = np.log([observation.measured_seconds / observation.predicted_seconds for observation in observations])
        deviations = np.array([observation.log_deviation for observation in observations])
        bounds = (LEAST_SCALES, LARGEST_SCALES) if len(observations) >= FEWEST_FOR_SCALES else None
        # Matrices of a few hundred rows gain nothing from threads, and lose much where others use the cores.
        with threadpool_limits(1):
            process = ErrorProcess.fit(inputs, targets, deviations, PRIOR_SCALES, bounds)
        return cls(process, accelerators, len(observations), [observation.workload for observation in observations])

    def correct(
        self, workload: Workload, placement: Placement, prediction: Prediction, accelerator_model: str | None = None
    ) -> Prediction:
        """The prediction with corrected times, and the interval that holds the step time with 90 % probability.

        Args:
            workload: Demand of the training.
            placement: Placement of the training.
            prediction: The cost model's prediction, uncorrected; a measured one is returned as it is.
            accelerator_model: The vendor's name of the accelerator; if None, the placement's own.
        """
        return self.correct_all(workload, [(placement, prediction, accelerator_model or placement.accelerator)])[0]

    def correct_all(
        self, workload: Workload, predictions: Sequence[tuple[Placement, Prediction, str]]
    ) -> list[Prediction]:
        """`correct` for many placements at once: (placement, prediction, accelerator model) each."""
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
        """Mean and standard deviation of log(measured / predicted) for each."""
        own = np.array([log_deviation(prediction) for _, prediction, _ in predictions])
        if self._process is None:
            return np.zeros(len(predictions)), own
        inputs = np.array(
            [
                [
                    *_features(workload, placement, prediction.step_seconds, prediction.parts),
                    *_one_hot(model, self._accelerators),
                ]
                for placement, prediction, model in predictions
            ]
        )
        means, deviations = self._process.predict(inputs)
        # What others teach about an accelerator that was never observed cannot make its own figures any surer.
        unknown = np.array([model not in self._accelerators for _, _, model in predictions])
        deviations = np.where(unknown, np.maximum(deviations, own), deviations)
        return means, deviations if _model_of(workload) in self._models else self._new_model_scale * deviations


def _model_of(workload: Workload) -> tuple[float, ...]:
    """What tells one model from another, whatever the data's size."""
    return (
        workload.matmul_flops_per_sample,
        workload.lookups_per_sample,
        workload.lookup_bytes_per_sample,
        workload.parameter_bytes,
    )


def _left_out_scale(process: ErrorProcess, models: Sequence[tuple[float, ...]]) -> float:
    """By how much the errors of a model are wider than expected when nothing of it was observed; at least 1.

    Each model is left out in turn, in closed form (Rasmussen and Williams, section 5.4.2, by blocks instead of single
    points), and its errors are set against the deviations that the others lead to.
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
    """What decides how the cost model errs, on logarithmic scales and near to the unit interval."""
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


def _one_hot(accelerator: str, accelerators: Sequence[str]) -> list[float]:
    """One coordinate for each known accelerator: an unknown one is as far from each as they are from one another."""
    return [float(accelerator == known) for known in accelerators]


def scaled(prediction: Prediction, log_ratio: float, deviation: float) -> Prediction:
    """The prediction with its times multiplied, at the same power."""
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
