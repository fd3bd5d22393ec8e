"""What the probes teach about the placements that were not probed."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

from engine.probes.measurement import Measurement
from hardware.cost.cost_model import epoch_steps
from hardware.types import Placement, Prediction, Workload
from planner.assessment import Candidate
from planner.candidates.placements import kind
from shunter.frozen import Frozen

MeasurePlacement = Callable[[Placement, int], Measurement | None]
"""Measures a number of steps at a placement; None when the memory did not suffice."""

Probe = tuple[Candidate, Measurement]


class FixedSeconds(Frozen):
    """What a step takes on an accelerator whatever its batch size."""

    predicted: float
    measured: float


def corrected(
    candidates: Sequence[Candidate], found: Mapping[Placement, Measurement | None], workload: Workload
) -> list[Candidate]:
    """Candidates with measured figures where there are some, and the estimates of the others set right by them.

    The cost model errs alike at neighbouring placements, in two ways: in what a step takes whatever its size, and in
    what each sample adds. Two probes that differ in batch size alone tell the first apart from the second; the nearest
    probe then scales the second. Without such a pair the whole step is scaled. Memory errs by a sum: libraries loaded.

    Args:
        candidates: Candidates with the cost model's own predictions.
        found: Measurements by placement; None where the memory did not suffice.
        workload: Demand of what was probed.
    """
    probes = [
        (candidate, measurement)
        for candidate in candidates
        if (measurement := found.get(candidate.placement)) is not None
    ]
    fixed = {
        name: _fixed_seconds(probes, name) for name in {candidate.placement.accelerator for candidate in candidates}
    }
    return [
        _corrected(candidate, found, probes, fixed[candidate.placement.accelerator], workload)
        for candidate in candidates
    ]


def _corrected(
    candidate: Candidate,
    found: Mapping[Placement, Measurement | None],
    probes: Sequence[Probe],
    fixed: FixedSeconds,
    workload: Workload,
) -> Candidate:
    measurement = found.get(candidate.placement)
    if measurement is not None:
        prediction = _measured(candidate, measurement, workload)
    else:
        prediction = _estimated_from_nearest(candidate, probes, fixed)
    out_of_memory = candidate.placement in found and measurement is None
    return candidate.model_copy(update={"prediction": prediction, "out_of_memory": out_of_memory})


def _fixed_seconds(probes: Sequence[Probe], accelerator: str) -> FixedSeconds:
    """Where the lines through two probes of unequal batch size meet no samples at all: predicted and measured.

    Of several such pairs the one with the widest span counts; zero when there is none.
    """
    here = [probe for probe in probes if probe[0].placement.accelerator == accelerator]
    pairs = [
        (small, large)
        for small, large in permutations(here, 2)
        if small[0].placement.batch_size < large[0].placement.batch_size
        and kind(small[0].placement) == kind(large[0].placement)
    ]
    if not pairs:
        return FixedSeconds(predicted=0.0, measured=0.0)
    small, large = max(pairs, key=lambda pair: pair[1][0].placement.batch_size / pair[0][0].placement.batch_size)
    sizes = small[0].placement.batch_size, large[0].placement.batch_size
    return FixedSeconds(
        predicted=_intercept(sizes, (small[0].prediction.step_seconds, large[0].prediction.step_seconds)),
        measured=_intercept(sizes, (small[1].step_seconds, large[1].step_seconds)),
    )


def _intercept(sizes: tuple[int, int], seconds: tuple[float, float]) -> float:
    """Seconds at no samples, on the line through two points; from none to all of what the smaller one took."""
    slope = (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    return min(max(0.0, seconds[0] - slope * sizes[0]), seconds[0])


def _estimated_from_nearest(candidate: Candidate, probes: Sequence[Probe], fixed: FixedSeconds) -> Prediction:
    """The estimate, set right by the probe of the same accelerator nearest in precision, then threads, then batch."""
    placement, prediction = candidate.placement, candidate.prediction

    def distance(probe: Probe) -> tuple[bool, float, float]:
        other = probe[0].placement
        threads = abs(math.log(other.threads / placement.threads))
        return other.precision != placement.precision, threads, abs(math.log(other.batch_size / placement.batch_size))

    alike = [probe for probe in probes if probe[0].placement.accelerator == placement.accelerator]
    if not alike:
        return prediction
    neighbour, measurement = min(alike, key=distance)
    growing = prediction.step_seconds - fixed.predicted
    ratio = (measurement.step_seconds - fixed.measured) / (neighbour.prediction.step_seconds - fixed.predicted)
    # Noise may put the fixed part above another kind's whole step: samples never take less than nothing.
    step_seconds = fixed.measured + growing * max(0.0, ratio)
    more_bytes = measurement.memory_bytes - neighbour.prediction.memory_bytes
    return _with_step_seconds(prediction, step_seconds).model_copy(
        update={"memory_bytes": max(0, prediction.memory_bytes + more_bytes)}
    )


def _measured(candidate: Candidate, measurement: Measurement, workload: Workload) -> Prediction:
    """The prediction with the probe's figures; estimated power stays the cost model's, so that all compare alike."""
    prediction = _with_step_seconds(candidate.prediction, measurement.step_seconds)
    update: dict[str, object] = {
        "step_seconds_source": "measured",
        "step_seconds_interval": measurement.step_seconds_interval,
        "parts": {},
        "memory_bytes": measurement.memory_bytes,
        "memory_source": "measured",
    }
    if measurement.watts_measured and measurement.mean_watts is not None:
        seconds = epoch_steps(workload, candidate.placement) * measurement.step_seconds
        update |= {"epoch_joules": measurement.mean_watts * seconds, "energy_source": "measured"}
    return prediction.model_copy(update=update)


def _with_step_seconds(prediction: Prediction, step_seconds: float) -> Prediction:
    """The prediction for another step time at the same power."""
    scale, interval = step_seconds / prediction.step_seconds, prediction.step_seconds_interval
    return prediction.model_copy(
        update={
            "step_seconds": step_seconds,
            "epoch_seconds": prediction.epoch_seconds * scale,
            "epoch_joules": None if prediction.epoch_joules is None else prediction.epoch_joules * scale,
            "samples_per_second": prediction.samples_per_second / scale,
            "step_seconds_interval": None if interval is None else (interval[0] * scale, interval[1] * scale),
            "parts": {name: seconds * scale for name, seconds in prediction.parts.items()},
        }
    )
