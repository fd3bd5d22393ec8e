"""The search: trial after trial, each a short training that Hyperband may stop, within the budget."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from engine.config import Execution, Schedule
from engine.dataset import Dataset
from engine.results import EpochReport, TrainResult
from engine.trainer import train
from hardware.meter import measure_energy
from hardware.types import Placement
from shunter.errors import TrainingError
from tasks.place import Place, Reading
from tasks.placement import execution_of
from tasks.request import TrainRequest
from tasks.track import (
    Run,
    child_run,
    epoch_metrics,
    model_params,
    open_run,
    placement_params,
    quality_metrics,
    schedule_params,
    training_metrics,
)
from tasks.tune.result import TuneResult, summarise
from tasks.tune.space import SearchSpace, weights_of_tasks
from tasks.tune.study import (
    FAILURE,
    check_has_result,
    finished_trials,
    lowest_ne,
    open_study,
    seeded_sampler,
    trials_with_result,
)
from tasks.tune.towers import tower_partitions

if TYPE_CHECKING:
    from optuna import Study, Trial


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a search stands after a trial: trials done of those asked for, and the lowest validation NE so far."""

    done: int
    trials: int
    best_ne: float | None


def search(
    dataset: Dataset,
    request: TrainRequest,
    placement: Placement,
    directory: Path,
    *,
    parent_run_id: str,
    should_stop: Callable[[], str | None] | None = None,
    on_trial: Callable[[Progress], None] | None = None,
    space: SearchSpace | None = None,
    place: Place | None = None,
) -> TuneResult:
    """Try `request.trials` settings, on the training and validation parts only, and rank them.

    Interrupted and called again with the same folder, it goes on: finished trials are not repeated. A trial that
    fails, by a loss that is no number or for want of memory, is noted and the search goes on.

    Args:
        dataset: the data; its test part is not touched.
        request: trials, longest training, seed, model family.
        placement: where the trials run.
        directory: of this search alone; the study is kept in it.
        parent_run_id: MLflow run below which each trial gets its own.
        should_stop: asked after each step; a text ends the search, which keeps what it has.
        on_trial: called after each trial.
        space: what is searched; by default for the size of the data.
        place: that trains instead of this machine.

    Raises:
        TrainingError: no trial came to a result.
        RequestError: the model family or a task with a weight is unknown, or the batch is larger than the data.
        DataError: an array cannot be read.
        TrackingError: the store fails.
    """
    if space is None:
        towers = tower_partitions(dataset, request, placement, directory, open_run(parent_run_id))
        space = SearchSpace.for_dataset(
            dataset, request.model, weights_of_tasks(request.task_weights, dataset.features.tasks)
        )
        space = space.model_copy(update={"tower_partitions": towers})
    study = open_study(directory, space, request.max_epochs)
    work = _Work(
        dataset=dataset,
        execution=execution_of(placement),
        schedule=Schedule(max_epochs=request.max_epochs, seed=request.seed),
        placement=placement,
        parent_run_id=parent_run_id,
        should_stop=should_stop,
        place=place,
    )
    resumed = done = len(finished_trials(study))
    stopped_because = None
    while done < request.trials:
        stopped_because = should_stop() if should_stop else None
        if stopped_because is not None:
            break
        study.sampler = seeded_sampler(request.seed, done, request.trials)
        _try_setting(study, space, work)
        done = len(finished_trials(study))
        if on_trial:
            on_trial(Progress(done=done, trials=request.trials, best_ne=_best_ne(study)))
    check_has_result(study, stopped_because)
    return summarise(study, space, resumed_trials=resumed, stopped_because=stopped_because)


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What all trials share."""

    dataset: Dataset
    execution: Execution
    schedule: Schedule
    placement: Placement
    parent_run_id: str
    should_stop: Callable[[], str | None] | None
    place: Place | None

    def meter(self) -> AbstractContextManager[Reading]:
        """Meter of a trial."""
        return self.place.meter(self.placement) if self.place else measure_energy(self.placement.accelerator)

    def training(self) -> Callable[..., TrainResult]:
        """What trains; see `engine.trainer.train`."""
        return self.place.training(self.placement, None) if self.place else train


def _try_setting(study: "Study", space: SearchSpace, work: _Work) -> None:
    """Ask for a setting, train it, and tell the study how it ended; Ctrl-C leaves the trial open, to be tried again."""
    from optuna.trial import TrialState

    trial = study.ask()
    try:
        with child_run(work.parent_run_id, f"trial-{trial.number}", "trial") as run:
            value = _run_trial(trial, space, work, run)
    except Exception as error:
        if not _is_failure_of_setting(error):
            raise
        trial.set_user_attr(FAILURE, str(error) or type(error).__name__)
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, value, state=None if value is not None else TrialState.PRUNED)


def _run_trial(trial: "Trial", space: SearchSpace, work: _Work, run: Run) -> float | None:
    """Train one setting; returns its lowest validation NE, None when it was pruned."""
    from optuna import TrialPruned

    trial.set_user_attr("run_id", run.run_id)
    spec, hyperparameters = space.build(space.suggest(trial))
    run.log_params(
        {
            **model_params(spec, hyperparameters),
            **schedule_params(work.schedule),
            **placement_params(work.placement),
        }
    )
    run.set_tags({"trial.state": "failed"})  # until it is known better: what fails has no chance to say so

    def on_epoch(report: EpochReport) -> None:
        run.log_metrics(epoch_metrics(report), step=report.epoch)
        trial.report(report.validation.ne, step=report.epoch)
        # After the last epoch there is nothing left to save, and a finished trial is worth more than a pruned one.
        if report.epoch < work.schedule.max_epochs and trial.should_prune():
            raise TrialPruned

    result = None
    with work.meter() as meter, contextlib.suppress(TrialPruned):
        result = work.training()(
            work.dataset,
            spec,
            hyperparameters,
            work.execution,
            work.schedule,
            on_epoch=on_epoch,
            should_stop=work.should_stop,
        )
    run.log_energy(meter.reading)
    run.set_tags({"trial.state": "pruned" if result is None else "complete"})
    return _log_result(run, result) if result else None


def _log_result(run: Run, result: TrainResult) -> float:
    # One step after the last epoch: the result is that of the best epoch, and MLflow shows the last step's value.
    run.log_metrics(
        {
            **quality_metrics(result.validation),
            **training_metrics(result),
            "training.best_epoch": result.best_epoch,
        },
        step=result.history[-1].epoch + 1,
    )
    run.set_tags({"training.stopped_because": result.stopped_because})
    return result.validation.ne


def _is_failure_of_setting(error: Exception) -> bool:
    """Whether another setting may do better: the loss went astray, or the memory did not suffice."""
    if isinstance(error, TrainingError | MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)  # torch's allocator on the CPU


def _best_ne(study: "Study") -> float | None:
    return min(map(lowest_ne, trials_with_result(study)), default=None)
