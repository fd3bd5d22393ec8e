"""Train one setting to the end: metered, tracked, resumable."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine.checkpoint.storage import save_model
from engine.checkpoint.warm_start import WarmStart
from engine.config import Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.execution import execution_of
from engine.executors.adaptation import Adaptation, Change
from engine.executors.compilation import choose_compilation
from engine.executors.energy import EnergyRecord
from engine.executors.role import Place
from engine.executors.this_machine import ThisMachine
from engine.job import Checkpointing, Hooks, TrainingJob
from engine.results import EpochReport
from engine.trained_model import TrainedModel, describe, read_finished
from hardware.types import Placement
from models.spec import ModelSpec
from tasks.train.progress import TrainingProgress, training_progress
from tracking.convention import epoch_metrics, model_params, placement_params, quality_metrics, training_metrics
from tracking.runs import Run, child_run


def train_to_the_end(
    dataset: Dataset,
    spec: ModelSpec,
    hyperparameters: Hyperparameters,
    placement: Placement,
    schedule: Schedule,
    *,
    directory: Path,
    name: str = "member",
    parent_run_id: str | None = None,
    should_stop: Callable[[], str | None] | None = None,
    adaptation: Adaptation | None = None,
    checkpoint_seconds: float = 300.0,
    place: Place | None = None,
    warm_start: WarmStart | None = None,
) -> TrainedModel:
    """Train one setting, or go on with it; a finished one is returned at once.

    Args:
        dataset: the data; its test part is not touched.
        spec: the architecture.
        hyperparameters: what it is learned with.
        placement: where it runs.
        schedule: for how long at most, and the seed.
        directory: of this training alone; holds the checkpoints, and in the end the model.
        name: of the run in MLflow and of the progress bar.
        parent_run_id: MLflow run under which this one is logged; None logs nothing.
        should_stop: asked after each step; a text ends the training.
        adaptation: lets the threads follow the measured steps, where one process trains without compiling; what a
            compiler has made keeps its threads.
        checkpoint_seconds: longest time between two checkpoints.
        place: that trains instead of this machine.
        warm_start: a trained model to go on from, where one process of this machine trains.

    Raises:
        CheckpointError: the folder holds another training.
        ShunterError: as `engine.loop.trainer.train`, and a TrackingError when the store fails.
    """
    finished = read_finished(directory, dataset, spec, hyperparameters, schedule)
    if finished is not None:
        return finished
    directory.mkdir(parents=True, exist_ok=True)
    checkpoints, energy_path = directory / "checkpoint", directory / "energy.json"
    executor = (place or ThisMachine()).executor(placement, checkpoints)
    with (
        _tracked(parent_run_id, name) as run,
        executor.meter() as meter,
        training_progress(name) as progress,
    ):
        energy = EnergyRecord(energy_path, meter)
        if run:
            _log_settings(run, spec, hyperparameters, placement, schedule)

        def on_epoch(report: EpochReport) -> None:
            energy.save()
            progress.on_epoch(report)
            if run:
                run.log_metrics(epoch_metrics(report), step=report.epoch)

        choice = choose_compilation(
            dataset,
            spec,
            hyperparameters,
            execution_of(placement),
            schedule,
            directory=checkpoints,
            eager_because=executor.eager_because,
        )
        if run:
            run.set_tags({"training.compilation": choice.reason})
        hooks = Hooks(on_epoch=on_epoch, on_step=progress.on_step, should_stop=should_stop)
        if adaptation is not None and not choice.compiled and executor.eager_because is None:
            adaptation.on_change = partial(_log_change, run, progress)
            hooks = replace(hooks, adapt=adaptation.after_step)
        execution = replace(execution_of(placement), compiled=choice.compiled)
        job = TrainingJob(dataset, spec, hyperparameters, execution, schedule, warm_start)
        try:
            result = executor.run(job, hooks, Checkpointing(checkpoints, checkpoint_seconds))
        except BaseException:
            energy.save()
            raise
        save_model(result.model, directory)
        trained = describe(
            result,
            directory=directory,
            name=name,
            dataset=dataset,
            hyperparameters=hyperparameters,
            placement=placement,
            schedule=schedule,
            energy=energy.reading(),
            run_id=run.run_id if run else None,
        )
        if run:
            _log_result(run, trained)
    trained.save()
    shutil.rmtree(checkpoints)
    energy_path.unlink(missing_ok=True)
    return trained


@contextmanager
def _tracked(parent_run_id: str | None, name: str) -> Iterator[Run | None]:
    """The run to log to, None when nobody wants to see it."""
    if parent_run_id is None:
        yield None
        return
    with child_run(parent_run_id, name, "member") as run:
        yield run


def _log_settings(
    run: Run, spec: ModelSpec, hyperparameters: Hyperparameters, placement: Placement, schedule: Schedule
) -> None:
    run.log_params({**model_params(spec, hyperparameters), **placement_params(placement)})
    run.log_params({f"schedule.{key}": value for key, value in vars(schedule).items()})


def _log_change(run: Run | None, progress: TrainingProgress, change: Change) -> None:
    """Say it, and keep it: the sentence of the last trial as a tag, the figures of each at its step."""
    progress.say(change.words)
    if run:
        run.log_metrics(
            {
                "adaptation.threads": change.after.threads,
                "adaptation.observed_step_seconds": change.observed,
                "adaptation.step_seconds": change.tried[change.after],
            },
            step=change.step,
        )
        run.set_tags({"adaptation.reason": change.words})


def _log_result(run: Run, trained: TrainedModel) -> None:
    """Log the figures of the whole training; the quality, last, is that of the weights that were kept."""
    run.log_metrics({**training_metrics(trained), "training.best_epoch": trained.best_epoch})
    run.log_metrics(quality_metrics(trained.validation), step=len(trained.history))
    run.log_energy(trained.energy)
    run.set_tags({"training.stopped_because": trained.stopped_because})
