"""What trainings take beyond what short probes of their steps promise, by the number of threads.

A probe has the machine for some milliseconds, and says what a step takes when nothing is in its way. In a training
other work is: batches are read, records kept, a server answers. A step on one thread hardly notices, while one on all
cores waits, in each of its parallel loops, for a thread that something else has put aside. By how much depends on the
machine and what runs on it, so it is learned from past trainings, which keep their mean step beside what was predicted.

The logarithm of training over probe is taken as a part that all have in common and one for each number of threads, both
normal about 0 (a Bayesian linear model; Bishop, "Pattern Recognition and Machine Learning", 2006, section 3.3). So a
number of threads that no training ran with takes its share of what the others showed, and keeps its doubt.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.hardware.cost.cost_model import log_deviation
from shunter.hardware.cost.residual import StepObservation, scaled
from shunter.hardware.types import HardwareProfile, Placement, Prediction

# Round numbers: a training may well take half again as long, and each tells within a third, or two thirds where it
# trained another architecture than the probe.
COMMON_DEVIATION = THREADS_DEVIATION = 0.4
ALIKE_DEVIATION, UNLIKE_DEVIATION = 0.3, 0.6
MOST_LOG_RATIO = math.log(10)  # of one training: a machine that was asleep tells nothing more
NEWEST = 60  # trainings on an accelerator that count
WORTH_TELLING = math.log(1.25)


@dataclass(frozen=True)
class _Ratio:
    """One training beside the nearest probe.

    Attributes:
        threads: Threads of both.
        log_ratio: Of the training's step over the probe's, each over its prediction.
        deviation: Of what it tells.
    """

    threads: int
    log_ratio: float
    deviation: float


@dataclass(frozen=True)
class _Accelerator:
    """An accelerator of this machine, and nothing like it elsewhere."""

    name: str
    model: str
    host: str
    machine: str

    def ran(self, step: StepObservation) -> bool:
        """Whether the step was measured on it."""
        return (step.accelerator_model, step.host, step.machine) == (self.model, self.host, self.machine)


class InTraining:
    """Sets steps right that were probed, or estimated from probes; see `of`.

    Args:
        ratios: What past trainings showed, by the accelerator of this machine.
    """

    def __init__(self, ratios: dict[_Accelerator, list[_Ratio]]) -> None:
        kept = {accelerator: own[-NEWEST:] for accelerator, own in ratios.items() if own}
        self._ratios = {accelerator.name: own for accelerator, own in kept.items()}
        self._accelerators = frozenset(kept)
        self._learned: dict[tuple[str, int], tuple[float, float]] = {}  # by accelerator and threads, as asked for

    @classmethod
    def of(cls, steps: Sequence[StepObservation], profiles: Sequence[HardwareProfile]) -> "InTraining":
        """Learn from past trainings on these very accelerators; where there are none, nothing is set right.

        Args:
            steps: Steps of past probes and trainings, in order of time, none of them compiled.
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
        """The steps as probes would have found them, so that the errors of the cost model are learned from alike ones.

        Args:
            steps: Steps of past probes and trainings, on any machine.
        """
        return [self._as_probed(step) if self._knows(step) else step for step in steps]

    def _knows(self, step: StepObservation) -> bool:
        """Whether it is of a training on an accelerator of which trainings have told something."""
        return step.steps is None and any(one.ran(step) for one in self._accelerators)

    def _as_probed(self, step: StepObservation) -> StepObservation:
        mean, deviation = self.log_ratio(step.placement)
        update = {
            "measured_seconds": step.measured_seconds / math.exp(mean),
            "log_deviation": math.hypot(step.log_deviation, deviation),
        }
        return step.model_copy(update=update)

    def correct(self, placement: Placement, prediction: Prediction) -> Prediction:
        """The prediction as a training would take it, with the doubt that remains.

        Args:
            placement: Placement on this machine.
            prediction: By a probe there, or estimated from those of its neighbours.
        """
        if placement.accelerator not in self._ratios:
            return prediction
        mean, deviation = self.log_ratio(placement)
        return scaled(prediction, mean, math.hypot(log_deviation(prediction), deviation))

    def log_ratio(self, placement: Placement) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm of training over probe; 0 and 0 where no training tells."""
        if placement.accelerator not in self._ratios:
            return 0.0, 0.0
        key = placement.accelerator, placement.threads
        if key not in self._learned:
            self._learned[key] = _posterior(self._ratios[placement.accelerator], placement.threads)
        return self._learned[key]

    def notes(self) -> list[str]:
        """What is far from what probes say, a sentence for each accelerator."""
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
        return f"Steps of past trainings on {name} took {' and '.join(said)} as short probes, which is allowed for."


def _posterior(ratios: Sequence[_Ratio], threads: int) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm of training over probe on a number of threads."""
    noise = np.array([ratio.deviation for ratio in ratios])
    tried = np.array([ratio.threads for ratio in ratios])
    prior = COMMON_DEVIATION**2 + THREADS_DEVIATION**2 * (tried[:, None] == tried[None, :])
    shared = COMMON_DEVIATION**2 + THREADS_DEVIATION**2 * (tried == threads)
    weights = np.linalg.solve(prior + np.diag(noise**2), shared)
    mean = weights @ [ratio.log_ratio for ratio in ratios]
    variance = COMMON_DEVIATION**2 + THREADS_DEVIATION**2 - weights @ shared
    return float(mean), math.sqrt(max(0.0, float(variance)))


def _ratio(step: StepObservation, probes: Sequence[StepObservation]) -> _Ratio | None:
    """A training beside the probe nearest to it, the newest of equals; None where none ran on as many threads."""
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
    """How far a probe is: by its architecture first, then by its batch size."""
    asks = [(one.workload.matmul_flops_per_sample, one.workload.lookups_per_sample) for one in (probe, step)]
    sizes = probe.placement.batch_size / step.placement.batch_size
    return asks[0] != asks[1], abs(math.log(sizes))
