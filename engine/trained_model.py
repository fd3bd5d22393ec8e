"""Description of a finished training run, also saved beside its model."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, computed_field, model_validator

from shunter.engine.checkpoint.checked_files import read_json, snapshot_folder, write_json
from shunter.engine.checkpoint.checkpoint_settings import CheckpointFigures
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.job import TrainingJob
from shunter.engine.metrics import Metrics
from shunter.engine.passes.record import PassRecord
from shunter.engine.results import EpochReport, TrainingFigures, TrainResult
from shunter.engine.stopping import StopReason
from shunter.engine.stopping_text import training_stop_text, with_stop_reason
from shunter.errors import CheckpointError, RequestError
from shunter.frozen import Frozen
from shunter.hardware.types import EnergyReading, Placement
from shunter.models.embeddings.cache_counts import CacheCounts, RowTraffic
from shunter.models.graph import GraphSpec, graph_spec
from shunter.models.registry import model_spec
from shunter.models.spec import ModelSpec


def _reader(kind: type, read: Callable[..., Any]) -> PlainValidator:
    def validate(value: object) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"not the options of an architecture: {value!r}")
        try:
            return read(**value)
        except (RequestError, TypeError) as error:
            raise ValueError(str(error)) from error

    return PlainValidator(validate)


AnyModelSpec = Annotated[ModelSpec, _reader(ModelSpec, model_spec), PlainSerializer(ModelSpec.to_dict)]
AnyGraphSpec = Annotated[GraphSpec, _reader(GraphSpec, graph_spec), PlainSerializer(GraphSpec.to_dict)]


FILE = "trained.json"

Spec = TypeVar("Spec")
Rates = TypeVar("Rates")
Quality = TypeVar("Quality")
Report = TypeVar("Report")


class Trained(Frozen, Generic[Spec, Rates, Quality, Report]):
    """Finished training run: all its `shunter.engine.results.TrainingFigures`, and the settings behind them.

    Attributes:
        directory: Folder of the model.
        name: Name of the training job, as in its run.
        data_fingerprint: Fingerprint of the training data set.
        spec: Architecture.
        hyperparameters: Hyperparameters.
        placement: Placement of the run.
        schedule: Largest number of epochs, and the seed.
        stop_reason: Reason why training ended.
        samples_per_second: Training throughput, validation and checkpoints left out.
        passes: Optimisation passes that were tried, with their gain or the reason of their rejection.
        energy: Energy of training, earlier attempts up to their last saved epoch included.
        run_id: MLflow run; None if it was not tracked.
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

    _read_old = model_validator(mode="before")(with_stop_reason)

    @computed_field
    @property
    def stopped_because(self) -> str:
        """Text of the stop reason, for people."""
        return training_stop_text(self.stop_reason)

    @classmethod
    def of(cls, result: TrainResult[Any, Any, Any], job: TrainingJob[Any, Any, Any], **values: Any) -> Self:
        """Return the description of a finished training run, without its weights; `values` are further fields."""
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
        """Write the description beside the model, as the last file: its presence marks a finished training run."""
        write_json(self.directory / FILE, self.model_dump_json(indent=1))


class TrainedModel(Trained[AnyModelSpec, Hyperparameters, Metrics, EpochReport]):
    """Trained click model; `shunter.engine.checkpoint.storage.load_model` loads its weights.

    Attributes:
        trial: Number of the search trial that trained the model; None if no trial did, as for a member that was trained
            for the ensemble only.
    """

    trial: int | None = None


Found = TypeVar("Found", bound=Trained[Any, Any, Any, Any])


def read_finished(kind: type[Found], directory: Path, job: TrainingJob[Any, Any, Any]) -> Found | None:
    """Return the finished training run in a folder; None if there is none.

    Args:
        kind: Class of the description.
        directory: Folder.
        job: Training job that the run must belong to.

    Raises:
        CheckpointError: The folder holds another training run, or a damaged description.
    """
    path = directory / FILE
    if not path.exists():
        return None
    try:
        found = kind.model_validate({**read_json(path), "directory": directory})
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"The file {path} does not describe a finished training run ({reason}): delete its folder and train again."
        ) from error
    asked = {
        "data": (job.dataset.fingerprint, found.data_fingerprint),
        "architecture": (job.spec, found.spec),
        "hyperparameters": (job.hyperparameters, found.hyperparameters),
        "schedule": (job.schedule, found.schedule),
    }
    different = [what for what, (wanted, there) in asked.items() if wanted != there]
    if different:
        raise CheckpointError(
            f"The folder {directory} holds another finished training run (it differs in "
            f"{', '.join(different)}): use another folder."
        )
    return found


def snapshots_of(trained: TrainedModel) -> Iterator[TrainedModel]:
    """Yield the snapshots of a finished training run in order, each as a separate model.

    A snapshot's cost is that of the training run up to it: time and samples as measured, energy in proportion to the
    time.
    """
    for report in trained.history:
        folder = snapshot_folder(trained.directory, report.epoch)
        if not folder.exists():
            continue
        share = report.train_seconds / trained.train_seconds if trained.train_seconds else 1.0
        energy = trained.energy
        part = {
            "joules": None if energy.joules is None else energy.joules * share,
            "seconds": energy.seconds * share,
            "source": f"{energy.source}; in proportion to the time",
        }
        yield trained.model_copy(
            update={
                "directory": folder,
                "name": f"snapshot-{report.epoch}",
                "validation": report.validation,
                "history": tuple(one for one in trained.history if one.epoch <= report.epoch),
                "best_epoch": report.epoch,
                "samples_seen": report.samples_seen,
                "train_seconds": report.train_seconds,
                "wait_seconds": report.wait_seconds,
                "compute_seconds": report.compute_seconds,
                "warm_up_steps": report.warm_up_steps,
                "warm_up_seconds": report.warm_up_seconds,
                "energy": energy.model_copy(update=part),
            }
        )
