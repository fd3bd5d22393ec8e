"""Shared parts of all training passes: their subject, their conditions, and the comparison of steps."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shunter.engine.job import ClickJob
from shunter.engine.passes.record import GainFigure
from shunter.engine.results import StepTiming

FASTER = 0.98  # largest ratio of step times that counts as faster; a smaller difference is noise


@dataclass(frozen=True)
class TrainingSubject:
    """Training run that is about to begin, with the function that measures the time of the steps of a job."""

    job: ClickJob
    measure: Callable[[ClickJob], StepTiming]

    def with_execution(self, **changes: Any) -> "TrainingSubject":
        """Return a copy of this training job and measurement with changed execution settings."""
        return replace(self, job=replace(self.job, execution=replace(self.job.execution, **changes)))


class TrainingPass:
    """Pass of the stage `training`."""

    def applies(self, subject: TrainingSubject) -> str | None:
        """Return the reason to skip the pass for a training run; None if the pass applies."""
        execution = subject.job.execution
        if execution.device != "cpu":
            return f"it has not been measured on {execution.device}"
        if execution.precision != "fp32":
            return "it is for full precision alone"
        return None


def times_of(before: TrainingSubject, after: TrainingSubject) -> tuple[StepTiming, StepTiming]:
    """Time training steps without and with a pass in turn, twice each; return the faster measurement of each."""
    found: list[list[StepTiming]] = [[], []]
    for _ in range(2):
        for timings, subject in zip(found, (before, after), strict=True):
            timings.append(subject.measure(subject.job))
    first, second = (min(timings, key=lambda one: one.step_seconds) for timings in found)
    return first, second


def step_figure(before: StepTiming, after: StepTiming) -> GainFigure:
    """Return the milliseconds of a step before and after the pass."""
    return GainFigure(
        name="step_milliseconds",
        before=1e3 * before.step_seconds,
        after=1e3 * after.step_seconds,
        source="measured",
    )
