"""What one training teaches: a trial of a search, or a member that was trained to the end."""

import math
from typing import Any, Literal, Protocol

from shunter.engine.job import TrainingJob
from shunter.hardware.types import EnergyReading, Placement
from shunter.tracking.convention import data_params
from shunter.tracking.evidence import Ending, Evidence, Figures, data_key


class Progress(Protocol):
    """How far a training came: the report of its last epoch, or the figures of all of it."""

    @property
    def samples_seen(self) -> int:
        """Training samples of all epochs."""
        ...

    @property
    def train_seconds(self) -> float:
        """Wall clock, validation and checkpoints included."""
        ...

    @property
    def wait_seconds(self) -> float:
        """Part of it that the steps waited for their batches."""
        ...

    @property
    def compute_seconds(self) -> float:
        """Part of it in forward, backward and update."""
        ...

    @property
    def warm_up_steps(self) -> int:
        """On a GPU, the first steps of each attempt."""
        ...

    @property
    def warm_up_seconds(self) -> float:
        """Part of the two times above that these took."""
        ...

    @property
    def validation(self) -> Any:
        """Quality on the validation part."""
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
    """The record of one training.

    Args:
        kind: Kind of its run.
        ending: How it ended.
        job: The training, with the data set as it was ingested.
        placement: Where it ran.
        progress: How far it came; None where it ended before its first validation.
        energy: Energy of it.
        expected: Prediction for it.
        compiled: Whether its steps were compiled.
    """
    seconds = progress.train_seconds if progress else energy.seconds
    rows = job.dataset.splits["train"].rows
    return Evidence(
        kind=kind,
        **dict(ending),
        data=data_key(data_params(job.dataset)),
        family=job.spec.family,
        placement=placement,
        auc=_share(getattr(progress.validation, "auc", None)) if progress else None,
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
    """Mean wall clock of a step, waiting for its batch included; None before the first validation.

    The first ones of a GPU, which a probe leaves out too, do not count where there are others: in a training of two
    hundred steps on an H200 the mean of all was more than three times that of a recorded one (by hand).
    """
    if progress is None or not progress.samples_seen:
        return None
    steps = progress.samples_seen / placement.batch_size
    seconds = progress.compute_seconds + progress.wait_seconds
    if steps > progress.warm_up_steps:
        steps, seconds = steps - progress.warm_up_steps, seconds - progress.warm_up_seconds
    return seconds / steps or None


def _share(value: float | None) -> float | None:
    """None for what is no number, such as the AUC of a single class."""
    return None if value is None or math.isnan(value) else value
