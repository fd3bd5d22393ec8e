"""Train one graph model to the end: metered, tracked, resumable, and scored once on the test part."""

import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from engine.checkpoint.storage import write_text
from engine.config import Schedule
from engine.data.dataset import Dataset
from engine.execution import execution_of
from engine.executors.energy import EnergyRecord
from engine.job import Checkpointing, Hooks, TrainingJob
from engine.loop.interrupt import stopped_between_steps
from engine.ranking.config import RankingHyperparameters, RankingReport
from engine.ranking.evaluation import UserFigures, evaluate_users
from engine.ranking.interactions import read_graph, read_interactions, sides
from engine.ranking.result import FILE, TrainedRanker, describe_ranker, read_finished
from engine.ranking.storage import StoredRanker, load_ranker, save_ranker
from engine.ranking.trainer import RankingData, train_ranking
from hardware.meters.meter import measure_energy
from hardware.types import Placement
from models.graph import GraphSpec
from reporting.card.ranking import ranking_card
from tasks.train.progress import training_progress
from tracking.convention import placement_params, schedule_params, training_metrics
from tracking.ranking import graph_params, ranking_epoch_metrics, ranking_metrics
from tracking.registry.card import log_texts
from tracking.runs import Run, child_run

CARD = "model_card/model_card.md"


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
    finished = read_finished(directory, settings)
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
            result = stopped_between_steps(train_ranking)(
                TrainingJob(data, spec, hyperparameters, execution_of(placement), schedule),
                Hooks(on_epoch=on_epoch, on_step=progress.on_step, should_stop=should_stop),
                Checkpointing(checkpoints, checkpoint_seconds),
            )
        except BaseException:
            energy.save()
            raise
        user, item = sides(dataset)
        stored = StoredRanker(ranker=result.ranker, spec=spec, features=dataset.features, user=user, item=item)
        save_ranker(stored, directory)
        figures = score_test(dataset, directory, data)
        trained = describe_ranker(
            result,
            directory=directory,
            fingerprint=dataset.fingerprint,
            hyperparameters=hyperparameters,
            placement=placement,
            schedule=schedule,
            test=figures.mean(),
            energy=energy.reading(),
            run_id=run.run_id if run else None,
        )
        if run:
            _log_result(run, trained)
        if parent_run_id:
            log_texts(parent_run_id, {CARD: ranking_card(trained, dataset, data.graph, figures)})
    write_text(directory / FILE, trained.model_dump_json(indent=1))
    shutil.rmtree(checkpoints)
    energy_path.unlink(missing_ok=True)
    return trained


def score_test(dataset: Dataset, directory: Path, data: RankingData) -> UserFigures:
    """Quality of the files themselves on the test part, so that the figure is that of what will be registered."""
    seen = data.seen.union(data.validation)
    return evaluate_users(load_ranker(directory).ranker, read_interactions(dataset, "test"), seen, name="test")


def _log_result(run: Run, trained: TrainedRanker) -> None:
    """Log the figures of the whole training; the quality, last, is that of the weights that were kept."""
    run.log_metrics({**training_metrics(trained), "training.best_epoch": trained.best_epoch})
    run.log_metrics(ranking_metrics(trained.validation), step=len(trained.history))
    run.log_metrics(ranking_metrics(trained.test, "test"))
    run.log_energy(trained.energy)
    run.set_tags({"training.stopped_because": trained.stopped_because})
