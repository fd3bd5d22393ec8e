"""Correction of catalogue predictions by steps measured on other machines that share the tracking store.

Every accelerator is slower than its data sheet promises, by a factor that depends on the accelerator and the kind of
work. The factor is learned from measured steps: a step's time over the prediction of that accelerator's catalogue
profile. `transfer` carries it over to similar accelerators and workloads. Without measured steps on a catalogue
accelerator the prediction is unchanged.
"""

import math
from collections.abc import Callable, Sequence

from shunter.errors import RequestError
from shunter.hardware.catalogue.offers import catalogue_profile
from shunter.hardware.catalogue.rows import AcceleratorRow, Catalogue
from shunter.hardware.cost.cost_model import CostModel
from shunter.hardware.cost.residual import StepObservation, scaled
from shunter.hardware.types import HardwareProfile, Placement, Prediction, Workload
from shunter.planner.history.transfer import Situation, Traits, estimate

CoreFactor = Callable[[Placement], float]
LEAST_DIFFERENCE = 1e-6  # in log seconds, so that of equal accelerators the one with the higher rates comes first
MOST_STEPS = 300  # newest steps used; the cost grows with their number cubed


def with_fleet(
    workload: Workload,
    predictions: Sequence[tuple[Placement, Prediction]],
    steps: Sequence[StepObservation],
    catalogue: Catalogue,
    core_factor: CoreFactor = lambda _: 1.0,
    *,
    here: Sequence[HardwareProfile] = (),
) -> list[Prediction]:
    """Return catalogue predictions, corrected by steps measured on the same or similar accelerators.

    Args:
        workload: Demand of the training.
        predictions: Predictions for placements on catalogue accelerators, under their catalogue names.
        steps: Steps measured on any machine.
        catalogue: Catalogue of accelerators.
        core_factor: Slowdown of a step on a placement's threads relative to perfect scaling, which the predictions
            already include.
        here: Profiles of this machine, for the minimum launch time.
    """
    promises = _Promises(catalogue, core_factor, here)
    seen = [
        (_situation(step.workload, step.placement, row), step.measured_seconds / promised)
        for step in steps[-MOST_STEPS:]
        if (row := promises.row(step.accelerator_model)) is not None
        if (promised := promises.step_seconds(step.workload, step.placement, row)) > 0
    ]
    if not seen or not predictions:
        return [prediction for _, prediction in predictions]
    plain = _without_lists(workload)
    rows = [promises.known_row(placement.accelerator) for placement, _ in predictions]
    asked = [_situation(plain, placement, row) for (placement, _), row in zip(predictions, rows, strict=True)]
    ratios = estimate(seen, asked)
    # The prediction may use more details of the workload than past runs store; the ratio refers to the stored ones.
    log_seconds = [
        math.log(promises.step_seconds(plain, placement, row)) + float(mean)
        for (placement, _), row, mean in zip(predictions, rows, ratios.mean, strict=True)
    ]
    log_seconds = _no_slower_without_evidence(log_seconds, asked, [situation for situation, _ in seen])
    # A new measurement differs from the belief by the measurement noise.
    return [
        scaled(prediction, log_time - math.log(prediction.step_seconds), math.hypot(float(deviation), ratios.noise))
        for (_, prediction), log_time, deviation in zip(predictions, log_seconds, ratios.deviation, strict=True)
    ]


def _no_slower_without_evidence(
    log_seconds: Sequence[float], asked: Sequence[Situation], seen: Sequence[Situation]
) -> list[float]:
    """Return the times, corrected so that an accelerator with higher published rates is not slower than another one.

    Whether a newer accelerator is slower than an older one is specific to a workload. A prediction that it is slower is
    therefore kept only if a workload with the same demands was measured on both.
    """
    found = list(log_seconds)
    measured: dict[tuple[float, ...], set[str]] = {}
    for step in seen:
        measured.setdefault(_rounded(step.log_demands), set()).add(step.accelerator.name)
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, one in enumerate(asked):
        groups.setdefault((one.family, one.batch_size, one.count), []).append(index)
    for indices in groups.values():
        indices.sort(key=lambda index: asked[index].accelerator.log_rates or ())
        for place, index in enumerate(indices):
            one = asked[index]
            known = measured.get(_rounded(one.log_demands), set())
            for slower in indices[:place]:
                is_known = {one.accelerator.name, asked[slower].accelerator.name} <= known
                if not is_known and one.accelerator.dominates(asked[slower].accelerator):
                    found[index] = min(found[index], found[slower] - LEAST_DIFFERENCE)
    return found


def _rounded(log_demands: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(demand, 1) for demand in log_demands)


class _Promises:
    """Predictor of step times on any accelerator, from catalogue figures only."""

    def __init__(self, catalogue: Catalogue, core_factor: CoreFactor, here: Sequence[HardwareProfile]) -> None:
        self._catalogue, self._core_factor, self._here = catalogue, core_factor, here
        self._rows: dict[str, AcceleratorRow | None] = {}
        self._models: dict[str, CostModel] = {}

    def row(self, name: str) -> AcceleratorRow | None:
        """Return an accelerator's catalogue row; None if unknown, for instance for a processor that hides its name."""
        if name not in self._rows:
            try:
                self._rows[name] = self._catalogue.find_accelerator(name)
            except RequestError:
                self._rows[name] = None
        return self._rows[name]

    def known_row(self, name: str) -> AcceleratorRow:
        """Return the row of an accelerator that is in the catalogue."""
        row = self.row(name)
        assert row is not None, f"{name} is not in the catalogue"
        return row

    def step_seconds(self, workload: Workload, placement: Placement, row: AcceleratorRow) -> float:
        """Return the predicted seconds of a step on the accelerator of this row."""
        if row.name not in self._models:
            self._models[row.name] = CostModel(catalogue_profile(row, catalogue=self._catalogue, here=self._here))
        there = placement.model_copy(update={"accelerator": row.name})
        seconds = self._models[row.name].predict(workload, there).step_seconds
        return seconds * self._core_factor(placement) if row.kind == "cpu" else seconds


def _situation(workload: Workload, placement: Placement, row: AcceleratorRow) -> Situation:
    demands = (workload.matmul_flops_per_sample, workload.lookup_bytes_per_sample, float(workload.parameter_bytes))
    return Situation(
        family=placement.precision,
        accelerator=Traits.of(row),
        batch_size=placement.batch_size,
        count=placement.processes,
        log_demands=tuple(math.log1p(demand) for demand in demands),
    )


def _without_lists(workload: Workload) -> Workload:
    """Return the workload without `matmuls`, `dense` and `access_curve`, which past runs do not store."""
    return workload.model_copy(update={"matmuls": (), "dense": {}, "access_curve": ()})
