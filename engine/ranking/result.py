"""What the training of a graph model hands on, and keeps beside the model."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from engine.checkpoint.storage import read_json
from engine.config import Schedule
from engine.ranking.config import RankingHyperparameters, RankingReport, RankingResult
from engine.ranking.evaluation import RankingMetrics
from hardware.types import EnergyReading, Placement
from models.graph import GraphSpec
from shunter.errors import CheckpointError

FILE = "trained.json"


class TrainedRanker(BaseModel):
    """A graph model, trained to the end; its vectors lie in `directory`, for `engine.ranking.storage.load_ranker`.

    Attributes:
        directory: folder of the model.
        data_fingerprint: of the data set it was trained on.
        spec: the architecture.
        hyperparameters: what it was learned with.
        placement: where it ran.
        schedule: for how long at most, and the seed.
        validation: quality of the best epoch, on the validation part.
        test: quality on the test part, which nothing before has seen; what a user saw in validation is not ranked.
        history: one report an epoch.
        best_epoch: the epoch whose weights were kept.
        parameters: learned numbers.
        samples_seen: positives of all epochs.
        train_seconds: wall clock, validation and checkpoints included, interruptions left out.
        wait_seconds: part of it that drawing the batches took.
        compute_seconds: part of it that forward, backward and update took.
        compile_seconds: 0, for nothing is compiled.
        samples_per_second: training throughput, validation and checkpoints left out.
        peak_memory_bytes: most memory used: of the device for a GPU, of the process for a CPU.
        energy: of the training, earlier attempts up to their last saved epoch included.
        stopped_because: `max_epochs`, `patience` or `budget: ...`.
        run_id: its MLflow run; None when it was not tracked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    directory: Path
    data_fingerprint: str
    spec: GraphSpec
    hyperparameters: RankingHyperparameters
    placement: Placement
    schedule: Schedule
    validation: RankingMetrics
    test: RankingMetrics
    history: tuple[RankingReport, ...]
    best_epoch: int
    parameters: int
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


def describe_ranker(
    result: RankingResult,
    *,
    directory: Path,
    fingerprint: str,
    hyperparameters: RankingHyperparameters,
    placement: Placement,
    schedule: Schedule,
    test: RankingMetrics,
    energy: EnergyReading,
    run_id: str | None,
) -> TrainedRanker:
    """Everything about a finished training but its vectors."""
    return TrainedRanker(
        directory=directory,
        data_fingerprint=fingerprint,
        spec=result.spec,
        hyperparameters=hyperparameters,
        placement=placement,
        schedule=schedule,
        validation=result.validation,
        test=test,
        history=result.history,
        best_epoch=result.best_epoch,
        parameters=result.parameters,
        samples_seen=result.samples_seen,
        train_seconds=result.train_seconds,
        wait_seconds=result.wait_seconds,
        compute_seconds=result.compute_seconds,
        samples_per_second=result.samples_per_second,
        peak_memory_bytes=result.peak_memory_bytes,
        energy=energy,
        stopped_because=result.stopped_because,
        run_id=run_id,
    )


def read_finished(
    directory: Path, settings: tuple[str, GraphSpec, RankingHyperparameters, Schedule]
) -> TrainedRanker | None:
    """The finished training in `directory`, None when there is none.

    Raises:
        CheckpointError: the folder holds another training, or a damaged description.
    """
    path = directory / FILE
    if not path.exists():
        return None
    try:
        found = TrainedRanker.model_validate({**read_json(path), "directory": directory})
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"The file {path} does not describe a finished training ({reason}).") from error
    if (found.data_fingerprint, found.spec, found.hyperparameters, found.schedule) != settings:
        raise CheckpointError(f"The folder {directory} holds another finished training: use another folder.")
    return found
