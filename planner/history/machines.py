"""Step observations by machine, with detection of speed changes and adjustment of older observations.

After a speed change older observations still show how placements compare. Those of the changed machine are therefore
scaled to the new level, with more uncertainty.
"""

import math
from collections.abc import Sequence

from pydantic import Field

from shunter.frozen import Frozen
from shunter.hardware.cost.residual import StepObservation
from shunter.planner.history.drift import Inspection, inspect
from shunter.planner.history.runs import Exclusion

ADJUSTED_DEVIATION = 0.15  # added to the noise of what was measured at another level, in log seconds


class Drift(Frozen):
    """Permanent change of a machine's speed."""

    host: str
    accelerator_model: str
    since: str = Field(description="Time of the first step after the change of speed, in UTC and ISO 8601.")
    step_ratio: float = Field(description="Ratio of the present step time to the former one.")
    adjusted: int = Field(description="Number of observations before the change that are scaled to the speed after it.")

    @property
    def text(self) -> str:
        """Return the change of speed as one sentence for the user."""
        change = f"{abs(self.step_ratio - 1):.0%} {'longer' if self.step_ratio > 1 else 'shorter'}"
        return (
            f"Since {self.since} a step on {self.accelerator_model} of {self.host} takes {change}: "
            f"{self.adjusted} older observation(s) are scaled in the same way, with more uncertainty."
        )


Found = tuple[str, StepObservation]
"""Pair of a step observation and the command's run in which a trial or member measured it."""


def inspect_machines(
    steps: Sequence[Found],
) -> tuple[tuple[StepObservation, ...], tuple[Drift, ...], list[Exclusion]]:
    """Return the observations at the current level of their machine, the changes, and the outliers.

    Args:
        steps: Step times of any machines; records without a machine id are grouped by the kind of machine. All
            observations of one command's run are one session.
    """
    machines: dict[tuple[str, str], list[Found]] = {}
    for run_id, step in sorted(steps, key=lambda found: found[1].measured_at):
        machines.setdefault((step.machine or step.host, step.accelerator_model), []).append((run_id, step))
    steady: list[StepObservation] = []
    drifts: list[Drift] = []
    outliers: list[Exclusion] = []
    for own in machines.values():
        found = inspect(
            [math.log(step.measured_seconds / step.predicted_seconds) for _, step in own],
            # A training run is disturbed more than a probe, so that the two are not compared.
            [(step.workload.model_dump_json(), step.placement, step.steps is None) for _, step in own],
            [run_id for run_id, _ in own],
        )
        if found.levels[-1].start:
            drifts.append(_drift(own, found))
        steady += _at_present_level(own, found)
        outliers += [
            Exclusion(
                run_id=own[index][0],
                reason=f"its step time at {own[index][1].placement.label} differs from those of similar placements",
            )
            for index in found.outliers
        ]
    steady.sort(key=lambda step: step.measured_at)
    return tuple(steady), tuple(drifts), outliers


def _drift(own: Sequence[Found], found: Inspection) -> Drift:
    last, before = found.levels[-1], found.levels[-2]
    step = own[last.start][1]
    return Drift(
        host=step.host,
        accelerator_model=step.accelerator_model,
        since=step.measured_at,
        step_ratio=math.exp(last.log_ratio - before.log_ratio),
        adjusted=last.start,
    )


def _at_present_level(own: Sequence[Found], found: Inspection) -> list[StepObservation]:
    """Return the observations without outliers, those of earlier levels scaled to the last level with more noise."""
    last, levels = found.levels[-1], iter(found.levels)
    ends = [*(level.start for level in found.levels[1:]), len(own)]
    kept, start = [], 0
    for level, end in zip(levels, ends, strict=True):
        shift = last.log_ratio - level.log_ratio
        for index in range(start, end):
            if index in found.outliers:
                continue
            step = own[index][1]
            if level is not last:
                noise = math.hypot(step.log_deviation, ADJUSTED_DEVIATION)
                moved = {"measured_seconds": step.measured_seconds * math.exp(shift), "log_deviation": noise}
                step = step.model_copy(update=moved)
            kept.append(step)
        start = end
    return kept
