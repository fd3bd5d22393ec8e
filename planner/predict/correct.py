"""Correction of predictions by probes, for placements with and without a probe."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations

from shunter.engine.probes.measurement import Measurement
from shunter.frozen import Frozen
from shunter.hardware.cost.cost_model import epoch_steps
from shunter.hardware.types import Placement, Prediction, Workload
from shunter.planner.assessment import Candidate
from shunter.planner.candidates.placements import kind

MeasurePlacement = Callable[[Placement, int], Measurement | None]
"""Function that measures a number of steps at a placement; returns None if memory did not suffice."""

Probe = tuple[Candidate, Measurement]


class FixedSeconds(Frozen):
    """Step time that does not depend on the batch size, on one accelerator."""

    predicted: float
    measured: float


def corrected(
    candidates: Sequence[Candidate], found: Mapping[Placement, Measurement | None], workload: Workload
) -> list[Candidate]:
    """Return candidates with measured figures where available, and with corrected estimates otherwise.

    The cost model's errors at neighbouring placements are similar in two terms: the constant time of a step, and the
    time of each sample. Two probes that differ only in batch size separate the terms; the nearest probe then scales the
    second term. Without such a pair the whole step is scaled. The memory error is additive, from loaded libraries.

    Args:
        candidates: Candidates with the cost model's own predictions.
        found: Measurements by placement; None if the memory did not suffice.
        workload: Demand of the probed training.
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
        prediction = _estimated(candidate, probes, fixed)
    was_probed = candidate.placement in found
    out_of_memory = measurement is None if was_probed else candidate.out_of_memory
    return candidate.model_copy(update={"prediction": prediction, "out_of_memory": out_of_memory})


def _fixed_seconds(probes: Sequence[Probe], accelerator: str) -> FixedSeconds:
    """Return the predicted and measured constant step time: intercepts of lines through two probes.

    The probes differ only in batch size. Of several pairs, the pair with the widest span is used; without a pair both
    values are 0.
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
    """Return the intercept of the line through two points, limited to between 0 and the smaller size's seconds."""
    slope = (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    return min(max(0.0, seconds[0] - slope * sizes[0]), seconds[0])


def _estimated(candidate: Candidate, probes: Sequence[Probe], fixed: FixedSeconds) -> Prediction:
    """Interpolate between probes of the same kind at a smaller and a larger batch, else scale by the nearest probe."""
    alike = [probe for probe in probes if probe[0].placement.accelerator == candidate.placement.accelerator]
    if not alike:
        return candidate.prediction
    pair = _bracketing(candidate, alike)
    if pair is not None:
        return _interpolated(candidate, *pair)
    return _estimated_from_nearest(candidate, min(alike, key=lambda probe: _distance(candidate, probe)), fixed)


def _distance(candidate: Candidate, probe: Probe) -> tuple[bool, float, float]:
    """Return a probe's distance from a candidate as a sort key: precision, then threads, then batch size."""
    placement, other = candidate.placement, probe[0].placement
    threads = abs(math.log(other.threads / placement.threads))
    return other.precision != placement.precision, threads, abs(math.log(other.batch_size / placement.batch_size))


def _bracketing(candidate: Candidate, probes: Sequence[Probe]) -> tuple[Probe, Probe] | None:
    """Return the probes of the same kind at the next smaller and larger batch size; None if one is missing."""
    same = [probe for probe in probes if kind(probe[0].placement) == kind(candidate.placement)]
    size = candidate.placement.batch_size
    smaller = [probe for probe in same if probe[0].placement.batch_size < size]
    larger = [probe for probe in same if probe[0].placement.batch_size > size]
    if not (smaller and larger):
        return None
    return max(smaller, key=_batch_size), min(larger, key=_batch_size)


def _batch_size(probe: Probe) -> int:
    return probe[0].placement.batch_size


def _interpolated(candidate: Candidate, smaller: Probe, larger: Probe) -> Prediction:
    """Return the prediction of a candidate, interpolated between two probes.

    Time and memory are interpolated linearly in the batch size, because a step has a constant time and a time per
    sample. The power correction is interpolated in the logarithm of the batch size.
    """
    low, size, high = _batch_size(smaller), candidate.placement.batch_size, _batch_size(larger)
    share = (size - low) / (high - low)
    step_seconds = (1 - share) * smaller[1].step_seconds + share * larger[1].step_seconds
    more = [measured.memory_bytes - probed.prediction.memory_bytes for probed, measured in (smaller, larger)]
    watts = [_estimated_watts(candidate, *probe) for probe in (smaller, larger)]
    known = None
    if watts[0] is not None and watts[1] is not None:
        octaves = math.log(size / low) / math.log(high / low)
        known = watts[0] ** (1 - octaves) * watts[1] ** octaves
    estimate = with_step_seconds(candidate.prediction, step_seconds)
    return _with_memory_and_power(estimate, round((1 - share) * more[0] + share * more[1]), known)


def _estimated_from_nearest(candidate: Candidate, nearest: Probe, fixed: FixedSeconds) -> Prediction:
    """Return the prediction with its batch-dependent time scaled by the nearest probe's measured/predicted ratio."""
    prediction, (neighbour, measurement) = candidate.prediction, nearest
    growing = prediction.step_seconds - fixed.predicted
    of_neighbour = neighbour.prediction.step_seconds - fixed.predicted
    if growing > 0 and of_neighbour > 0:
        # Noise can put the constant part above another kind's whole step; the ratio is therefore at least 0.
        ratio = max(0.0, (measurement.step_seconds - fixed.measured) / of_neighbour)
        step_seconds = fixed.measured + growing * ratio
    else:  # another kind, whose predicted whole step is shorter than the constant part
        step_seconds = prediction.step_seconds * measurement.step_seconds / neighbour.prediction.step_seconds
    more_bytes = measurement.memory_bytes - neighbour.prediction.memory_bytes
    estimate = with_step_seconds(prediction, step_seconds)
    return _with_memory_and_power(estimate, more_bytes, _estimated_watts(candidate, neighbour, measurement))


def _with_memory_and_power(prediction: Prediction, more_bytes: int, watts: float | None) -> Prediction:
    update: dict[str, object] = {"memory_bytes": max(0, prediction.memory_bytes + more_bytes)}
    if watts is not None:
        update |= {"epoch_joules": watts * prediction.epoch_seconds, "energy_source": "estimated"}
    return prediction.model_copy(update=update)


def _estimated_watts(candidate: Candidate, neighbour: Candidate, measurement: Measurement) -> float | None:
    """Return the predicted watts times the probed neighbour's measured/predicted ratio; None if it was not measured."""
    predicted, of_neighbour = _predicted_watts(candidate), _predicted_watts(neighbour)
    if not measurement.watts_measured or measurement.mean_watts is None:
        return None
    if predicted is None or not of_neighbour:
        return measurement.mean_watts
    return predicted * measurement.mean_watts / of_neighbour


def _predicted_watts(candidate: Candidate) -> float | None:
    joules = candidate.prediction.epoch_joules
    return None if joules is None else joules / candidate.prediction.epoch_seconds


def _measured(candidate: Candidate, measurement: Measurement, workload: Workload) -> Prediction:
    """Return the prediction with the figures that the probe measured; power that it did not measure stays predicted."""
    prediction = with_step_seconds(candidate.prediction, measurement.step_seconds)
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


def with_step_seconds(prediction: Prediction, step_seconds: float) -> Prediction:
    """Return the prediction scaled to another step time; the power stays the same."""
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
