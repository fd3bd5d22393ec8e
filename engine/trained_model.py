"""What a finished training hands on, and keeps beside the model."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from pydantic import ConfigDict, Field, computed_field, model_validator

from shunter.engine.checkpoint.keeping import CheckpointFigures
from shunter.engine.checkpoint.storage import read_json, write_json
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.job import TrainingJob
from shunter.engine.metrics import Metrics
from shunter.engine.passes.record import PassRecord
from shunter.engine.results import EpochReport, TrainingFigures, TrainResult
from shunter.engine.specs import AnyModelSpec
from shunter.engine.stopping import StopReason
from shunter.engine.stopping_text import training_stop_text, with_stop_reason
from shunter.errors import CheckpointError
from shunter.frozen import Frozen
from shunter.hardware.types import EnergyReading, Placement
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.embeddings.row_traffic import RowTraffic

FILE = "trained.json"

Spec = TypeVar("Spec")
Rates = TypeVar("Rates")
Quality = TypeVar("Quality")
Report = TypeVar("Report")


class Trained(Frozen, Generic[Spec, Rates, Quality, Report]):
    """One training, finished: all of its `shunter.engine.results.TrainingFigures`, and what led to them.

    Attributes:
        directory: Folder of the model.
        name: Name of the training, as in its run.
        data_fingerprint: Fingerprint of the data set that it was trained on.
        spec: The architecture.
        hyperparameters: Settings that it was learned with.
        placement: Where it ran.
        schedule: Longest duration, and the seed.
        stop_reason: Reason why it ended.
        samples_per_second: Training throughput, validation and checkpoints left out.
        passes: Passes that were tried on it, with what they gained or why they were refused.
        energy: Energy of the training, earlier attempts up to their last saved epoch included.
        run_id: Its MLflow run; None when it was not tracked.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")

    directory: Path
    name: str = "member-0"
    data_fingerprint: str
    spec: Spec
    hyperparameters: Rates
    placement: Placement
    schedule: Schedule
    validation: Quality
    history: tuple[Report, ...]
    best_epoch: int
    samples_seen: int
    train_seconds: float
    wait_seconds: float
    compute_seconds: float
    warm_up_steps: int = Field(default=0, exclude_if=lambda value: not value)
    warm_up_seconds: float = Field(default=0.0, exclude_if=lambda value: not value)
    compile_seconds: float = 0.0
    samples_per_second: float
    peak_memory_bytes: int
    energy: EnergyReading
    checkpoints: CheckpointFigures | None = None
    tiers: CacheCounts | None = Field(default=None, exclude_if=lambda value: value is None)
    row_traffic: RowTraffic | None = Field(default=None, exclude_if=lambda value: value is None)
    stop_reason: StopReason
    run_id: str | None
    passes: tuple[PassRecord, ...] = Field(default=(), exclude_if=lambda value: not value)

    @model_validator(mode="before")
    @classmethod
    def _read_old(cls, values: Any) -> Any:
        """Accept the description of an earlier version, which holds the text of the reason alone."""
        return with_stop_reason(values)

    @computed_field
    @property
    def stopped_because(self) -> str:
        """The reason as a text, for people."""
        return training_stop_text(self.stop_reason)

    @classmethod
    def of(cls, result: TrainResult[Any, Any, Any], job: TrainingJob[Any, Any, Any], **values: Any) -> Self:
        """Everything about a finished training but its weights.

        Args:
            result: The result.
            job: The training.
            values: The fields that neither of them knows.
        """
        figures = {field.name: getattr(result, field.name) for field in fields(TrainingFigures)}
        return cls(
            data_fingerprint=job.dataset.fingerprint,
            spec=job.spec,
            hyperparameters=job.hyperparameters,
            schedule=job.schedule,
            samples_per_second=result.samples_per_second,
            **figures,
            **values,
        )

    def save(self) -> None:
        """Write the description beside the model: the last write, which says that the training is finished."""
        write_json(self.directory / FILE, self.model_dump_json(indent=1))


class TrainedModel(Trained[AnyModelSpec, Hyperparameters, Metrics, EpochReport]):
    """A trained model of clicks; the weights are for `shunter.engine.checkpoint.storage.load_model`.

    Attributes:
        trial: Number of the trial of the search that trained it; None where it was trained as a member.
    """

    trial: int | None = None


Found = TypeVar("Found", bound=Trained[Any, Any, Any, Any])


def read_finished(kind: type[Found], directory: Path, job: TrainingJob[Any, Any, Any]) -> Found | None:
    """The finished training in a folder, None when there is none.

    Args:
        kind: What is looked for.
        directory: The folder.
        job: The training that it must be of.

    Raises:
        CheckpointError: The folder holds another training, or a damaged description.
    """
    path = directory / FILE
    if not path.exists():
        return None
    try:
        found = kind.model_validate({**read_json(path), "directory": directory})
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"The file {path} does not describe a finished training ({reason}).") from error
    asked = {
        "data": (job.dataset.fingerprint, found.data_fingerprint),
        "architecture": (job.spec, found.spec),
        "hyperparameters": (job.hyperparameters, found.hyperparameters),
        "schedule": (job.schedule, found.schedule),
    }
    different = [what for what, (wanted, there) in asked.items() if wanted != there]
    if different:
        raise CheckpointError(
            f"The folder {directory} holds another finished training (it differs in {', '.join(different)}): "
            f"use another folder."
        )
    return found
