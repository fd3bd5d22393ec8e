"""Ratio of step times in training to those of short probes, by number of threads.

A probe runs for some milliseconds and measures an undisturbed step. During training there is other work:
reading batches, writing records, serving. A step on one thread is hardly affected. A step on all cores waits, in each
parallel loop, for a thread that other work has displaced. The ratio depends on the machine and its load, so it is
learned from past training runs, which store their mean step time beside the prediction.

The log ratio is the sum of a common term and a term for each number of threads, both normal with mean 0 (a Bayesian
linear model; Bishop, "Pattern Recognition and Machine Learning", 2006, section 3.3). The ratio for a number of threads
without training runs is thus estimated from the other numbers of threads, with more uncertainty.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.hardware.cost.cost_model import log_deviation
from shunter.hardware.cost.residual import StepObservation, scaled
from shunter.hardware.types import HardwareProfile, Placement, Prediction

# Round numbers: a training run can take 1.5 times as long; one training run is exact to a third, or two thirds if its
# architecture differs from the probe's.
COMMON_DEVIATION = THREADS_DEVIATION = 0.4
ALIKE_DEVIATION, UNLIKE_DEVIATION = 0.3, 0.6
MOST_LOG_RATIO = math.log(10)  # limit of one training run's ratio, against outliers such as a suspended machine
NEWEST = 60  # newest training runs used for an accelerator
WORTH_TELLING = math.log(1.25)  # smallest log ratio that is reported


@dataclass(frozen=True)
class _Ratio:
    """One training run compared with the nearest probe.

    Attributes:
        threads: Number of threads of the training run and of the probe.
        log_ratio: log(step time in training / in the probe), each relative to its prediction.
        deviation: Standard deviation of `log_ratio`.
    """

    threads: int
    log_ratio: float
    deviation: float


@dataclass(frozen=True)
class _Accelerator:
    """Identity of one accelerator of this machine."""

    name: str
    model: str
    host: str
    machine: str

    def ran(self, step: StepObservation) -> bool:
        """Return True if the step was measured on this accelerator."""
        return (step.accelerator_model, step.host, step.machine) == (self.model, self.host, self.machine)


class InTraining:
    """Correction of probed or estimated step times to step times in training; see `of`.

    Args:
        ratios: Ratios of past training runs, by accelerator of this machine.
    """

    def __init__(self, ratios: dict[_Accelerator, list[_Ratio]]) -> None:
        kept = {accelerator: own[-NEWEST:] for accelerator, own in ratios.items() if own}
        self._ratios = {accelerator.name: own for accelerator, own in kept.items()}
        self._accelerators = frozenset(kept)
        self._learned: dict[tuple[str, int], tuple[float, float]] = {}  # cache by accelerator and threads

    @classmethod
    def of(cls, steps: Sequence[StepObservation], profiles: Sequence[HardwareProfile]) -> "InTraining":
        """Learn the correction from past training runs on the profiled accelerators; without any, nothing is corrected.

        Args:
            steps: Steps of past probes and training runs, in order of time, none of them compiled.
            profiles: Profiles of the accelerators of this machine.
        """
        ratios: dict[_Accelerator, list[_Ratio]] = {}
        for profile in profiles:
            name, model = profile.accelerator.name, profile.accelerator.model
            accelerator = _Accelerator(name, model, profile.host, profile.machine)
            own = [step for step in steps if accelerator.ran(step) and step.placement.accelerator == name]
            probes = [step for step in own if step.steps is not None]
            found = [_ratio(step, probes) for step in own if step.steps is None]
            ratios[accelerator] = [ratio for ratio in found if ratio is not None]
        return cls(ratios)

    def as_probed(self, steps: Sequence[StepObservation]) -> list[StepObservation]:
        """Return the steps scaled to probe conditions, so that the cost model's errors are learned consistently.

        Args:
            steps: Steps of past probes and training runs, on any machine.
        """
        return [self._as_probed(step) if self._knows(step) else step for step in steps]

    def _knows(self, step: StepObservation) -> bool:
        """Return True if the step is of a training run on an accelerator with learned ratios."""
        return step.steps is None and any(one.ran(step) for one in self._accelerators)

    def _as_probed(self, step: StepObservation) -> StepObservation:
        mean, deviation = self.log_ratio(step.placement)
        update = {
            "measured_seconds": step.measured_seconds / math.exp(mean),
            "log_deviation": math.hypot(step.log_deviation, deviation),
        }
        return step.model_copy(update=update)

    def correct(self, placement: Placement, prediction: Prediction) -> Prediction:
        """Return the prediction scaled to training conditions, with the remaining uncertainty.

        Args:
            placement: Placement on this machine.
            prediction: Prediction by a probe at the placement, or estimated from neighbouring probes.
        """
        if placement.accelerator not in self._ratios:
            return prediction
        mean, deviation = self.log_ratio(placement)
        return scaled(prediction, mean, math.hypot(log_deviation(prediction), deviation))

    def log_ratio(self, placement: Placement) -> tuple[float, float]:
        """Return mean and deviation of log(step time in training / in a probe); (0, 0) without past training runs."""
        if placement.accelerator not in self._ratios:
            return 0.0, 0.0
        key = placement.accelerator, placement.threads
        if key not in self._learned:
            self._learned[key] = _posterior(self._ratios[placement.accelerator], placement.threads)
        return self._learned[key]

    def notes(self) -> list[str]:
        """Return a note for each accelerator whose ratio is far from 1."""
        return [note for name, own in self._ratios.items() if (note := self._note(name, own))]

    def _note(self, name: str, own: Sequence[_Ratio]) -> str:
        said = []
        for threads in sorted({ratio.threads for ratio in own}):
            where = Placement(accelerator=name, threads=threads, precision="fp32", batch_size=1)
            mean, _ = self.log_ratio(where)
            if abs(mean) > WORTH_TELLING:
                said.append(f"{math.exp(mean):.2g} times as long on {threads} thread(s)")
        if not said:
            return ""
        return (
            f"Steps of past training runs on {name} took {' and '.join(said)} as short probes, which the "
            "prediction includes."
        )


def _posterior(ratios: Sequence[_Ratio], threads: int) -> tuple[float, float]:
    """Return the posterior mean and standard deviation of the log ratio for a number of threads."""
    noise = np.array([ratio.deviation for ratio in ratios])
    tried = np.array([ratio.threads for ratio in ratios])
    prior = COMMON_DEVIATION**2 + THREADS_DEVIATION**2 * (tried[:, None] == tried[None, :])
    shared = COMMON_DEVIATION**2 + THREADS_DEVIATION**2 * (tried == threads)
    weights = np.linalg.solve(prior + np.diag(noise**2), shared)
    mean = weights @ [ratio.log_ratio for ratio in ratios]
    variance = COMMON_DEVIATION**2 + THREADS_DEVIATION**2 - weights @ shared
    return float(mean), math.sqrt(max(0.0, float(variance)))


def _ratio(step: StepObservation, probes: Sequence[StepObservation]) -> _Ratio | None:
    """Return the ratio of a training run's step time to that of its nearest probe; None without such a probe."""
    placement = step.placement
    alike = [
        probe
        for probe in probes
        if (probe.placement.threads, probe.placement.precision) == (placement.threads, placement.precision)
        and probe.placement.processes == placement.processes
    ]
    if not alike:
        return None
    nearest = min(reversed(alike), key=lambda probe: _distance(probe, step))
    log_ratio = math.log(step.measured_seconds / step.predicted_seconds)
    log_ratio -= math.log(nearest.measured_seconds / nearest.predicted_seconds)
    is_same = _distance(nearest, step) == (False, 0.0)
    return _Ratio(
        threads=placement.threads,
        log_ratio=max(-MOST_LOG_RATIO, min(MOST_LOG_RATIO, log_ratio)),
        deviation=ALIKE_DEVIATION if is_same else UNLIKE_DEVIATION,
    )


def _distance(probe: StepObservation, step: StepObservation) -> tuple[bool, float]:
    """Return a probe's distance from a training step as a sort key: architecture, then batch size."""
    asks = [(one.workload.matmul_flops_per_sample, one.workload.lookups_per_sample) for one in (probe, step)]
    sizes = probe.placement.batch_size / step.placement.batch_size
    return asks[0] != asks[1], abs(math.log(sizes))
