"""Train one graph model to the end: metered, tracked, resumable, and scored once on the test part."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from engine.config import Schedule
from engine.dataset import Dataset
from engine.ranking.config import RankingHyperparameters, RankingReport
from engine.ranking.evaluation import RankingMetrics, evaluate_ranking
from engine.ranking.interactions import read_graph, read_interactions, sides
from engine.ranking.storage import StoredRanker, load_ranker, save_ranker
from engine.ranking.trainer import RankingData, train_ranking
from engine.storage import read_json, write_text
from hardware.meter import measure_energy
from hardware.types import EnergyReading, Placement
from models.graph import GraphSpec
from shunter.errors import CheckpointError
from tasks.placement import execution_of
from tasks.track import (
    Run,
    child_run,
    graph_params,
    placement_params,
    ranking_epoch_metrics,
    ranking_metrics,
    schedule_params,
    training_metrics,
)
from tasks.train.energy import EnergyRecord
from tasks.train.progress import training_progress

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


def train_ranker_to_the_end(
    dataset: Dataset,
    spec: GraphSpec,
    hyperparameters: RankingHyperparameters,
    placement: Placement,
    schedule: Schedule,
    *,
    directory: Path,
    name: str = "member-0",
    parent_run_id: str | None = None,
    should_stop: Callable[[], str | None] | None = None,
    checkpoint_seconds: float = 300.0,
) -> TrainedRanker:
    """Train one graph model, or go on with it; a finished one is returned at once, its test part not scored again.

    Args:
        dataset: the data, which says which fields are user and item.
        spec: the architecture.
        hyperparameters: what it is learned with.
        placement: where it runs.
        schedule: for how long at most, and the seed.
        directory: of this training alone; holds the checkpoints, and in the end the model.
        name: of the run in MLflow and of the progress bar.
        parent_run_id: MLflow run under which this one is logged, and which gets the final figures; None logs nothing.
        should_stop: asked after each step; a text ends the training.
        checkpoint_seconds: longest time between two checkpoints.

    Raises:
        CheckpointError: the folder holds another training.
        ShunterError: as `engine.ranking.trainer.train_ranking`, and a TrackingError when the store fails.
    """
    settings = (dataset.fingerprint, spec, hyperparameters, schedule)
    finished = _read_finished(directory, settings)
    if finished is not None:
        return finished
    data = RankingData(
        graph=read_graph(dataset),
        validation=read_interactions(dataset, "validation"),
        fingerprint=dataset.fingerprint,
    )
    directory.mkdir(parents=True, exist_ok=True)
    checkpoints, energy_path = directory / "checkpoint", directory / "energy.json"
    tracked = child_run(parent_run_id, name, "member") if parent_run_id else nullcontext()
    with tracked as run, measure_energy(placement.accelerator) as meter, training_progress(name) as progress:
        energy = EnergyRecord(energy_path, meter)
        if run:
            run.log_params({**graph_params(spec, hyperparameters), **placement_params(placement)})
            run.log_params(schedule_params(schedule))

        def on_epoch(report: RankingReport) -> None:
            energy.save()
            quality = report.validation
            progress.show(f"epoch {report.epoch}: NDCG@20 {quality.ndcg20:.4f}, recall@20 {quality.recall20:.4f}")
            if run:
                run.log_metrics(ranking_epoch_metrics(report), step=report.epoch)

        try:
            result = train_ranking(
                data,
                spec,
                hyperparameters,
                execution_of(placement),
                schedule,
                checkpoint_directory=checkpoints,
                checkpoint_seconds=checkpoint_seconds,
                on_epoch=on_epoch,
                on_step=progress.on_step,
                should_stop=should_stop,
            )
        except KeyboardInterrupt:
            energy.save()
            raise
        user, item = sides(dataset)
        stored = StoredRanker(ranker=result.ranker, spec=spec, features=dataset.features, user=user, item=item)
        save_ranker(stored, directory)
        trained = TrainedRanker(
            directory=directory,
            data_fingerprint=dataset.fingerprint,
            spec=spec,
            hyperparameters=hyperparameters,
            placement=placement,
            schedule=schedule,
            validation=result.validation,
            test=score_test(dataset, directory, data),
            history=result.history,
            best_epoch=result.best_epoch,
            parameters=result.parameters,
            samples_seen=result.samples_seen,
            train_seconds=result.train_seconds,
            wait_seconds=result.wait_seconds,
            compute_seconds=result.compute_seconds,
            samples_per_second=result.samples_per_second,
            peak_memory_bytes=result.peak_memory_bytes,
            energy=energy.reading(),
            stopped_because=result.stopped_because,
            run_id=run.run_id if run else None,
        )
        if run:
            _log_result(run, trained)
    write_text(directory / FILE, trained.model_dump_json(indent=1))
    shutil.rmtree(checkpoints)
    energy_path.unlink(missing_ok=True)
    return trained


def score_test(dataset: Dataset, directory: Path, data: RankingData) -> RankingMetrics:
    """Quality of the files themselves on the test part, so that the figure is that of what will be registered."""
    seen = data.seen.union(data.validation)
    return evaluate_ranking(load_ranker(directory).ranker, read_interactions(dataset, "test"), seen, name="test")


def _log_result(run: Run, trained: TrainedRanker) -> None:
    """Log the figures of the whole training; the quality, last, is that of the weights that were kept."""
    run.log_metrics({**training_metrics(trained), "training.best_epoch": trained.best_epoch})
    run.log_metrics(ranking_metrics(trained.validation), step=len(trained.history))
    run.log_metrics(ranking_metrics(trained.test, "test"))
    run.log_energy(trained.energy)
    run.set_tags({"training.stopped_because": trained.stopped_because})


def _read_finished(
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
