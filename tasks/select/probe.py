"""Short measurements of the real model at the most promising placements; what they teach corrects the other ones."""

import logging
import math
from collections.abc import Mapping, Sequence

from engine.config import Execution, Hyperparameters
from engine.dataset import Dataset
from engine.probe import time_steps
from hardware.cost_model import epoch_steps
from hardware.meter import measure_energy
from hardware.types import Frozen, Placement, Prediction, Workload
from models.spec import ModelSpec
from tasks.select.decide import Candidate

log = logging.getLogger(__name__)


class Measurement(Frozen):
    """What a short probe found at one placement."""

    step_seconds: float
    memory_bytes: int
    mean_watts: float | None
    watts_measured: bool


def measure(dataset: Dataset, spec: ModelSpec, candidate: Candidate, seconds: float = 1.0) -> Measurement | None:
    """Train `spec` for a few steps at the candidate's placement, with time, memory and power taken.

    Args:
        dataset: the data.
        spec: the architecture.
        candidate: its predicted step time tells how many steps, from 5 to 100, fit into `seconds`.
        seconds: length to aim at, start-up left out.

    Returns:
        None when the memory did not suffice.

    Raises:
        HardwareError: the placement's device cannot be used.
    """
    placement = candidate.placement
    steps = min(100, max(5, int(seconds / candidate.prediction.step_seconds)))
    execution = Execution(
        device=placement.accelerator,
        threads=placement.threads,
        precision=placement.precision,
        batch_size=placement.batch_size,
        prefetch_depth=placement.prefetch_depth,
    )
    try:
        with measure_energy(placement.accelerator) as meter:
            timing = time_steps(dataset, spec, Hyperparameters(), execution, steps=steps)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        log.warning("%s runs out of memory.", placement.label)
        return None
    return Measurement(
        step_seconds=timing.step_seconds,
        memory_bytes=timing.peak_memory_bytes,
        mean_watts=meter.reading.mean_watts,
        watts_measured=meter.reading.method == "measured",
    )


def corrected(
    candidates: Sequence[Candidate], found: Mapping[Placement, Measurement | None], workload: Workload
) -> list[Candidate]:
    """Candidates with measured figures where there are some, and the estimates of the others set right by them.

    The cost model errs alike at neighbouring placements. An estimate is therefore multiplied by the ratio of measured
    to estimated step time at the nearest probe, and the difference in memory there is added.

    Args:
        candidates: with the cost model's own predictions.
        found: measurements by placement; None where the memory did not suffice.
        workload: what was probed.
    """
    probes = [(one, measurement) for one in candidates if (measurement := found.get(one.placement)) is not None]
    return [_corrected(one, found, probes, workload) for one in candidates]


def _corrected(
    candidate: Candidate,
    found: Mapping[Placement, Measurement | None],
    probes: Sequence[tuple[Candidate, Measurement]],
    workload: Workload,
) -> Candidate:
    measurement = found.get(candidate.placement)
    if measurement is not None:
        prediction = _measured(candidate, measurement, workload)
    else:
        prediction = _estimated_from_nearest(candidate, probes)
    out_of_memory = candidate.placement in found and measurement is None
    return candidate.model_copy(update={"prediction": prediction, "out_of_memory": out_of_memory})


def _estimated_from_nearest(candidate: Candidate, probes: Sequence[tuple[Candidate, Measurement]]) -> Prediction:
    """The estimate, set right by the probe of the same accelerator nearest in precision, then threads, then batch."""
    placement = candidate.placement

    def distance(probe: tuple[Candidate, Measurement]) -> tuple[bool, float, float]:
        other = probe[0].placement
        threads = abs(math.log(other.threads / placement.threads))
        return other.precision != placement.precision, threads, abs(math.log(other.batch_size / placement.batch_size))

    alike = [probe for probe in probes if probe[0].placement.accelerator == placement.accelerator]
    if not alike:
        return candidate.prediction
    neighbour, measurement = min(alike, key=distance)
    ratio = measurement.step_seconds / neighbour.prediction.step_seconds
    more_bytes = measurement.memory_bytes - neighbour.prediction.memory_bytes
    return _with_step_seconds(candidate.prediction, candidate.prediction.step_seconds * ratio).model_copy(
        update={"memory_bytes": max(0, candidate.prediction.memory_bytes + more_bytes)}
    )


def _measured(candidate: Candidate, measurement: Measurement, workload: Workload) -> Prediction:
    """The prediction with the probe's figures; estimated power stays the cost model's, so that all compare alike."""
    prediction = _with_step_seconds(candidate.prediction, measurement.step_seconds)
    update: dict[str, object] = {
        "step_seconds_source": "measured",
        "memory_bytes": measurement.memory_bytes,
        "memory_source": "measured",
    }
    if measurement.watts_measured and measurement.mean_watts is not None:
        seconds = epoch_steps(workload, candidate.placement) * measurement.step_seconds
        update |= {"epoch_joules": measurement.mean_watts * seconds, "energy_source": "measured"}
    return prediction.model_copy(update=update)


def _with_step_seconds(prediction: Prediction, step_seconds: float) -> Prediction:
    """The prediction for another step time at the same power."""
    scale = step_seconds / prediction.step_seconds
    return prediction.model_copy(
        update={
            "step_seconds": step_seconds,
            "epoch_seconds": prediction.epoch_seconds * scale,
            "epoch_joules": None if prediction.epoch_joules is None else prediction.epoch_joules * scale,
            "samples_per_second": prediction.samples_per_second / scale,
        }
    )


def _is_out_of_memory(error: Exception) -> bool:
    """Whether torch or Python ran out of memory; torch's CPU allocator says so only in its text."""
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
