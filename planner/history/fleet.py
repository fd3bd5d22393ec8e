"""What machines that share the tracking store teach about accelerators of the catalogue that this one has not.

A data sheet promises rates, and every accelerator falls short of them in its own way, and of one kind of work more than
of another. By how much is learned from measured steps: the ratio of a step's time to what the catalogue's profile of
that accelerator promises, carried over to its likes by `transfer`. Without a step measured on an accelerator of the
catalogue its promise stays.
"""

import math
from collections.abc import Callable, Sequence

from shunter.errors import RequestError
from shunter.hardware.catalogue.offers import catalogue_profile
from shunter.hardware.catalogue.rows import AcceleratorRow, Catalogue
from shunter.hardware.cost.cost_model import CostModel
from shunter.hardware.cost.residual import StepObservation, scaled
from shunter.hardware.types import Placement, Prediction, Workload
from shunter.planner.history.transfer import Situation, Traits, estimate

CoreFactor = Callable[[Placement], float]
MOST_STEPS = 300  # the newest; the work grows with their number cubed


def with_fleet(
    workload: Workload,
    predictions: Sequence[tuple[Placement, Prediction]],
    steps: Sequence[StepObservation],
    catalogue: Catalogue,
    core_factor: CoreFactor = lambda _: 1.0,
) -> list[Prediction]:
    """Predictions from the catalogue, set right by what was measured on these accelerators and their likes.

    Args:
        workload: Demand of the training.
        predictions: Predictions for placements on accelerators of the catalogue, which bear its names.
        steps: Steps measured anywhere.
        catalogue: Catalogue of accelerators.
        core_factor: How much longer a step takes on a placement's threads than if each did its part; it is in the
            predictions already.
    """
    promises = _Promises(catalogue, core_factor)
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
    corrected = []
    for (placement, prediction), row, mean, deviation in zip(
        predictions, rows, ratios.mean, ratios.deviation, strict=True
    ):
        # The prediction may know more of the workload than past runs keep: the ratio belongs to what they keep.
        log_seconds = math.log(promises.step_seconds(plain, placement, row)) + float(mean)
        # What comes differs from what is believed by the noise of one more measurement.
        doubt = math.hypot(float(deviation), ratios.noise)
        corrected.append(scaled(prediction, log_seconds - math.log(prediction.step_seconds), doubt))
    return corrected


class _Promises:
    """Step times by the catalogue alone; rows and models are looked up once."""

    def __init__(self, catalogue: Catalogue, core_factor: CoreFactor) -> None:
        self._catalogue, self._core_factor = catalogue, core_factor
        self._rows: dict[str, AcceleratorRow | None] = {}
        self._models: dict[str, CostModel] = {}

    def row(self, name: str) -> AcceleratorRow | None:
        """Of the catalogue; None for what it does not know, for instance a processor that hides its name."""
        if name not in self._rows:
            try:
                self._rows[name] = self._catalogue.find_accelerator(name)
            except RequestError:
                self._rows[name] = None
        return self._rows[name]

    def known_row(self, name: str) -> AcceleratorRow:
        """Of an accelerator that was found in the catalogue before."""
        row = self.row(name)
        assert row is not None, f"{name} is not of the catalogue"
        return row

    def step_seconds(self, workload: Workload, placement: Placement, row: AcceleratorRow) -> float:
        """Seconds of a step on the accelerator of this row."""
        if row.name not in self._models:
            self._models[row.name] = CostModel(catalogue_profile(row, catalogue=self._catalogue))
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
    """As past runs keep it, so that like is compared with like."""
    return workload.model_copy(update={"matmuls": (), "dense": {}, "access_curve": ()})
