"""Training record of one training job: a search trial or an ensemble member."""

import math
from typing import Any, Literal, Protocol

from shunter.engine.job import TrainingJob
from shunter.hardware.types import EnergyReading, Placement
from shunter.tracking.convention import data_params
from shunter.tracking.evidence import Ending, Evidence, Figures, data_key


class Progress(Protocol):
    """Progress of a training job: the report of its last epoch, or the figures of the whole job."""

    @property
    def samples_seen(self) -> int:
        """Number of training samples of all epochs."""
        ...

    @property
    def train_seconds(self) -> float:
        """Wall-clock time in seconds, including validation and checkpoints."""
        ...

    @property
    def wait_seconds(self) -> float:
        """Seconds of `train_seconds` in which the steps waited for batches."""
        ...

    @property
    def compute_seconds(self) -> float:
        """Seconds of `train_seconds` in forward, backward and update."""
        ...

    @property
    def warm_up_steps(self) -> int:
        """Number of warm-up steps, the first steps of each attempt on a GPU."""
        ...

    @property
    def warm_up_seconds(self) -> float:
        """Seconds of `wait_seconds` and `compute_seconds` in the warm-up steps."""
        ...

    @property
    def validation(self) -> Any:
        """Quality of the model on the validation part."""
        ...


def training_evidence(
    kind: Literal["member", "trial"],
    ending: Ending,
    job: TrainingJob[Any, Any, Any],
    placement: Placement,
    *,
    progress: Progress | None,
    energy: EnergyReading,
    expected: Figures = Figures(),  # noqa: B008 - frozen
    compiled: bool = False,
) -> Evidence:
    """Return the training record of one training job.

    Args:
        kind: Kind of the run.
        ending: Outcome of the run.
        job: The training job with the ingested data set.
        placement: Placement of the training.
        progress: Progress of the training; None if it ended before its first validation.
        energy: Measured or estimated energy of the training.
        expected: Predicted figures of the training.
        compiled: Whether the steps were compiled.
    """
    seconds = progress.train_seconds if progress else energy.seconds
    rows = job.dataset.splits["train"].rows
    auc = getattr(progress.validation, "auc", None) if progress else None
    return Evidence(
        kind=kind,
        **dict(ending),
        data=data_key(data_params(job.dataset)),
        family=job.spec.family,
        placement=placement,
        auc=None if auc is None or math.isnan(auc) else auc,  # NaN: the validation part has a single class
        epochs=progress.samples_seen / rows if progress else 0.0,
        planned_epochs=job.schedule.max_epochs,
        predicted=expected,
        measured=Figures(
            seconds=seconds or None,
            joules=energy.joules or None,
            joules_source=energy.method,
            step_seconds=mean_step_seconds(progress, placement),
            step_seconds_source="measured",
            memory_bytes=getattr(progress, "peak_memory_bytes", None),
            memory_source="measured",
        ),
        total_seconds=seconds or None,
        total_joules=energy.joules or None,
        compiled=compiled,
    )


def mean_step_seconds(progress: Progress | None, placement: Placement) -> float | None:
    """Return the mean wall-clock time of a step in seconds, including the wait for its batch.

    The value is None before the first validation. Warm-up steps on a GPU are excluded if there are further steps, as in
    the short measurements of a placement. Measured on an H200 with two hundred steps, the mean over all steps was more
    than three times the time of a step recorded as a CUDA graph.
    """
    if progress is None or not progress.samples_seen:
        return None
    steps = progress.samples_seen / placement.batch_size
    seconds = progress.compute_seconds + progress.wait_seconds
    if steps > progress.warm_up_steps:
        steps, seconds = steps - progress.warm_up_steps, seconds - progress.warm_up_seconds
    return seconds / steps or None
