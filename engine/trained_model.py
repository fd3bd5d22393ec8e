"""What the step hands on, and keeps beside the model."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from engine.checkpoint.storage import read_json, write_text
from engine.config import Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.metrics import Metrics
from engine.results import EpochReport, TrainResult
from hardware.types import EnergyReading, Placement
from models.spec import ModelSpec
from shunter.errors import CheckpointError

FILE = "trained.json"


class TrainedModel(BaseModel):
    """One setting, trained to the end; the weights lie in `directory`, for `engine.checkpoint.storage.load_model`.

    Attributes:
        directory: folder of the model.
        name: of the member, as in its run.
        data_fingerprint: of the data set it was trained on.
        spec: the architecture.
        hyperparameters: what it was learned with.
        placement: where it ran.
        schedule: for how long at most, and the seed.
        validation: quality of the best epoch, on the validation part.
        history: one report an epoch.
        best_epoch: the epoch whose weights were kept.
        samples_seen: training samples of all epochs.
        train_seconds: wall clock, validation and checkpoints included, interruptions left out.
        wait_seconds: part of it that the step waited for a batch.
        compute_seconds: part of it that forward, backward and update took.
        compile_seconds: part of it that compiling the dense part took; 0 when it was not compiled.
        samples_per_second: training throughput, validation and checkpoints left out.
        peak_memory_bytes: most memory used: of the device for a GPU, of the process for a CPU.
        energy: of the training, earlier attempts up to their last saved epoch included.
        stopped_because: `max_epochs`, `patience` or `budget: ...`.
        run_id: its MLflow run; None when it was not tracked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    directory: Path
    name: str
    data_fingerprint: str
    spec: ModelSpec
    hyperparameters: Hyperparameters
    placement: Placement
    schedule: Schedule
    validation: Metrics
    history: tuple[EpochReport, ...]
    best_epoch: int
    samples_seen: int
    train_seconds: float
    wait_seconds: float
    compute_seconds: float
    compile_seconds: float = 0.0
    samples_per_second: float
    peak_memory_bytes: int
    energy: EnergyReading
    stopped_because: str
    run_id: str | None

    def save(self) -> None:
        """Write the description beside the model: the last write, which says that the training is finished."""
        write_text(self.directory / FILE, self.model_dump_json(indent=1))


def describe(
    result: TrainResult,
    *,
    directory: Path,
    name: str,
    dataset: Dataset,
    hyperparameters: Hyperparameters,
    placement: Placement,
    schedule: Schedule,
    energy: EnergyReading,
    run_id: str | None,
) -> TrainedModel:
    """Everything about a finished training but its weights."""
    return TrainedModel(
        directory=directory,
        name=name,
        data_fingerprint=dataset.fingerprint,
        spec=result.model.spec,
        hyperparameters=hyperparameters,
        placement=placement,
        schedule=schedule,
        validation=result.validation,
        history=result.history,
        best_epoch=result.best_epoch,
        samples_seen=result.samples_seen,
        train_seconds=result.train_seconds,
        wait_seconds=result.wait_seconds,
        compute_seconds=result.compute_seconds,
        compile_seconds=result.compile_seconds,
        samples_per_second=result.samples_per_second,
        peak_memory_bytes=result.peak_memory_bytes,
        energy=energy,
        stopped_because=result.stopped_because,
        run_id=run_id,
    )


def read_finished(
    directory: Path, dataset: Dataset, spec: ModelSpec, hyperparameters: Hyperparameters, schedule: Schedule
) -> TrainedModel | None:
    """The finished training in `directory`, None when there is none.

    Raises:
        CheckpointError: the folder holds another training, or a damaged description.
    """
    path = directory / FILE
    if not path.exists():
        return None
    try:
        found = TrainedModel.model_validate({**read_json(path), "directory": directory})
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"The file {path} does not describe a finished training ({reason}).") from error
    asked = {
        "data": dataset.fingerprint,
        "architecture": spec,
        "hyperparameters": hyperparameters,
        "schedule": schedule,
    }
    there = (found.data_fingerprint, found.spec, found.hyperparameters, found.schedule)
    different = [what for (what, wanted), has in zip(asked.items(), there, strict=True) if wanted != has]
    if different:
        raise CheckpointError(
            f"The folder {directory} holds another finished training (it differs in {', '.join(different)}): "
            f"use another folder."
        )
    return found
