"""Training of one model to completion: metered, tracked and resumable."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from shunter.engine.checkpoint.checked_files import CHOICES, MODEL_FILES
from shunter.engine.checkpoint.checkpoint_settings import ROW_SELECTIONS, CheckpointSettings, stored_bits
from shunter.engine.ensemble.scored import copy_scores
from shunter.engine.executors.adaptation import Adaptation, Change
from shunter.engine.executors.energy import EnergyRecord
from shunter.engine.executors.role import ComputeTarget
from shunter.engine.executors.this_machine import ThisMachine
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.stopping import ShouldStop
from shunter.engine.trained_model import TrainedModel, read_finished
from shunter.errors import CheckpointError, TrackingError
from shunter.hardware.types import Placement
from shunter.parallel import periodic
from shunter.planner.predict.observe import Expectation, step_observation
from shunter.requests import CheckpointRequest
from shunter.tasks.progress_line import FlowBar, ProgressLine, progress_line
from shunter.tasks.train.kinds import CHECKPOINT, Kind, kind_of
from shunter.tracking.callbacks import CalledTraining, called
from shunter.tracking.convention import TRIAL_OF_MEMBER, RunKind, placement_params, training_metrics, training_stop_tags
from shunter.tracking.evidence import Ending, Evidence, Figures, ending_of, log_evidence
from shunter.tracking.learning import log_steps
from shunter.tracking.runs import Run, child_run
from shunter.tracking.training_evidence import Progress, mean_step_seconds, training_evidence

AS_USUAL = CheckpointRequest()


@dataclass
class TrainingRecord:
    """Record of a training run, stored with its run however the training ends; later predictions use it."""

    job: TrainingJob[Any, Any, Any]
    placement: Placement
    energy: EnergyRecord
    expected: Expectation | None
    compiled: bool
    progress: Progress | None = None

    def save(self, report: Progress) -> None:
        """Record the progress, and save the energy for a later attempt."""
        self.progress = report
        self.energy.save()

    def log(self, run: Run, trained: Any, *, learns_steps: bool) -> None:
        """Log the record of a finished run, and the time of its steps if all of them ran at the placement."""
        self.progress = trained
        log_evidence(run.run_id, self._evidence(ending_of(reason=trained.stop_reason)))
        seconds = mean_step_seconds(trained, self.placement)
        if self.expected is None or seconds is None or not learns_steps:
            return
        energy = self.energy.reading()
        observed = step_observation(
            self.job.dataset,
            self.job.spec,
            self.placement,
            self.expected.profile,
            seconds,
            compiled=self.compiled,
            measured_watts=energy.mean_watts if energy.teaches_power else None,
        )
        log_steps(run.run_id, [observed])

    def log_failure(self, run: Run | None, error: BaseException) -> None:
        """Log the record of a training run that an error ended; errors of the store are ignored."""
        if run is not None:
            with suppress(TrackingError):
                log_evidence(run.run_id, self._evidence(ending_of(error=error)))

    def _evidence(self, ending: Ending) -> Evidence:
        return training_evidence(
            "member",
            ending,
            self.job,
            self.placement,
            progress=self.progress,
            energy=self.energy.reading(),
            expected=self.expected.figures if self.expected else Figures(),
            compiled=self.compiled,
        )


def train_model(
    job: TrainingJob[Any, Any, Any],
    placement: Placement,
    directory: Path,
    *,
    name: str = "member",
    parent_run_id: str | None = None,
    run_kind: RunKind = "member",
    should_stop: ShouldStop | None = None,
    adaptation: Adaptation | None = None,
    checkpoints: CheckpointRequest = AS_USUAL,
    place: ComputeTarget | None = None,
    expected: Expectation | None = None,
    watch: Callable[[Any], None] | None = None,
    is_shown: bool = True,
) -> Any:
    """Train one model, or resume its training; return a finished model at once.

    Args:
        job: Training job; its execution is that of the placement.
        placement: Placement of the training.
        directory: Folder of this training run only; holds the checkpoints and, at the end, the model.
        name: Name of the run in MLflow and of the progress bar.
        parent_run_id: MLflow run under which this one is logged; None logs nothing.
        run_kind: Kind of the training's own run.
        should_stop: Called after each step; a reason ends the training.
        adaptation: Adapts the number of threads to the measured steps, if one process trains without compilation;
            compiled code keeps its threads.
        checkpoints: Options of the checkpoints.
        place: Machines that train instead of this one.
        expected: Expected time and energy, logged beside the measured ones; None if unknown.
        watch: Called with the report of each epoch.
        is_shown: Whether to draw a progress bar.

    Returns:
        A `TrainedModel`, or a `TrainedRanker` for a graph model.

    Raises:
        CheckpointError: The folder holds another training run.
        ShunterError: See `shunter.engine.loop.trainer.train`; a TrackingError when the store fails.
    """
    kind = kind_of(job)
    finished = read_finished(kind.trained, directory, job)
    if finished is not None:
        return finished
    kind.load()
    directory.mkdir(parents=True, exist_ok=True)
    folder, energy_path = directory / CHECKPOINT, directory / "energy.json"
    executor = (place or ThisMachine()).executor(placement, folder)
    with (
        _tracked(parent_run_id, name, run_kind) as run,
        executor.meter() as meter,
        progress_line(name, is_shown=is_shown) as progress,
    ):
        energy = EnergyRecord(energy_path, meter)
        if run:
            run.log_params({**kind.params(), **placement_params(placement)})
        prepared = kind.prepared(executor, folder, run)
        record = TrainingRecord(job, placement, energy, expected, prepared.execution.compiled)
        watchers = [*([_shown_in_prefect(name, progress)] if run_kind == "member" else []), *([watch] if watch else [])]
        hooks = replace(_hooks(kind, run, progress, record, watchers), should_stop=should_stop)
        hooks = called(hooks, CalledTraining(name, run_kind, run))
        if adaptation is not None and executor.trains_in_process and not prepared.execution.compiled:
            adaptation.on_change = partial(_log_change, run, progress)
            hooks = replace(hooks, adapt=adaptation.after_step)
        try:
            with periodic(energy.save):
                result = executor.run(prepared, hooks, checkpointing_of(checkpoints, folder))
        except BaseException as error:
            energy.save()
            record.log_failure(run, error)
            raise
        own_fields = kind.save(result, directory)
        trained = kind.trained.of(
            result,
            job,
            directory=directory,
            name=name,
            placement=executor.placement,
            energy=energy.reading(),
            run_id=run.run_id if run else None,
            **own_fields,
        )
        if run:
            log_result(run, trained, kind)
            if executor.moves:
                run.set_tags({"training.moves": " ".join(executor.moves)})
            is_as_placed = executor.placement == placement and (adaptation is None or adaptation.placement == placement)
            record.log(run, trained, learns_steps=kind.has_steps and is_as_placed)
    trained.save()
    remove_but_choices(folder)
    energy_path.unlink(missing_ok=True)
    return trained


def _hooks(
    kind: Kind,
    run: Run | None,
    progress: ProgressLine,
    record: TrainingRecord,
    watchers: Sequence[Callable[[Any], None]],
) -> Hooks:
    def on_epoch(report: Any) -> None:
        record.save(report)
        kind.show(report, progress)
        if run and not getattr(report, "is_check", False):  # a check within an epoch is no point of the training curve
            run.log_metrics(kind.epoch_metrics(report), step=report.epoch)
        for watch in watchers:
            watch(report)

    return Hooks(on_epoch=on_epoch, on_step=progress.on_step)


def _shown_in_prefect(name: str, progress: ProgressLine) -> Callable[[Any], None]:
    """Return a function that shows the progress line after an epoch in Prefect."""
    bar = FlowBar("training")
    return lambda _: bar.move(progress.share, f"{name}: {progress.words}")


@contextmanager
def _tracked(parent_run_id: str | None, name: str, kind: RunKind) -> Iterator[Run | None]:
    """Yield the MLflow run to log to; None without a parent run."""
    if parent_run_id is None:
        yield None
        return
    with child_run(parent_run_id, name, kind) as run:
        yield run


def _log_change(run: Run | None, progress: ProgressLine, change: Change) -> None:
    """Print and log a change of threads: the sentence as a tag, the figures as metrics at the step."""
    progress.say(change.explain())
    if run:
        run.log_metrics(
            {
                "adaptation.threads": change.after.threads,
                "adaptation.observed_step_seconds": change.observed,
                "adaptation.step_seconds": change.tried[change.after],
            },
            step=change.step,
        )
        run.set_tags({"adaptation.reason": change.explain()})


def log_result(run: Run, trained: Any, kind: Kind) -> None:
    """Log the metrics of the whole training run, and the quality of the final weights last."""
    run.log_metrics({**training_metrics(trained), "training.best_epoch": trained.best_epoch})
    joules = trained.checkpoints.joules(trained.energy.joules) if trained.checkpoints is not None else None
    if joules is not None:
        run.log_metrics({"checkpoint.joules": joules})
    for metrics, step in kind.quality(trained):
        run.log_metrics(metrics, step=step)
    run.log_energy(trained.energy)
    run.set_tags(training_stop_tags(trained.stop_reason))


def checkpointing_of(request: CheckpointRequest, directory: Path) -> Checkpointing:
    """Return folder, frequency and policy of the checkpoints of a training run."""
    return Checkpointing(
        directory,
        seconds=60 * request.checkpoint_minutes,
        checkpoint_settings=CheckpointSettings(
            bits=stored_bits(request.checkpoint_bits.value),
            rows=next(policy for policy in ROW_SELECTIONS if policy == request.checkpoint_policy),
            generations=request.keep_checkpoints,
            bytes_per_second=None if request.checkpoint_rate is None else request.checkpoint_rate * 2**20,
            copied_to=request.checkpoint_copy,
        ),
    )


def remove_but_choices(folder: Path) -> None:
    """Remove the state of a finished training run, except for the choices by which it was computed."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif not path.match(CHOICES):
            path.unlink()


def adopt_trial(
    found: Path | None, job: ClickJob, directory: Path, *, name: str, parent_run_id: str | None
) -> TrainedModel | None:
    """Return the finished training run of a trial as a member; None if there is none or it is of another training run.

    The same settings, data, seed and schedule give the same weights, so nothing is trained again.

    Args:
        found: Folder of the trial's model; None if no model was stored.
        job: Training job of the member.
        directory: Folder of the member; a finished member is returned unchanged.
        name: Name of the member's run.
        parent_run_id: MLflow run under which it is logged; None logs nothing.

    Raises:
        CheckpointError: The folder of the member holds another training run.
        TrackingError: The store fails.
    """
    finished = read_finished(TrainedModel, directory, job)
    if finished is not None or found is None:
        return finished
    with suppress(CheckpointError):
        trained = read_finished(TrainedModel, found, job)
        if trained is not None:
            return _taken_over(trained, job, directory, name, parent_run_id)
    return None


def _taken_over(
    trained: TrainedModel, job: ClickJob, directory: Path, name: str, parent_run_id: str | None
) -> TrainedModel:
    directory.mkdir(parents=True, exist_ok=True)
    for file in MODEL_FILES:
        shutil.copyfile(trained.directory / file, directory / file)
    copy_scores(trained.directory, directory, job.dataset, "validation", job.execution)
    member = trained.model_copy(update={"directory": directory, "name": name, "run_id": None})
    if parent_run_id is not None:
        with child_run(parent_run_id, name, "member") as run:
            kind = kind_of(job)
            run.log_params({**kind.params(), **placement_params(trained.placement)})
            run.set_tags({TRIAL_OF_MEMBER: trained.name})
            for report in trained.history:
                run.log_metrics(kind.epoch_metrics(report), step=report.epoch)
            log_result(run, member, kind)
            member = member.model_copy(update={"run_id": run.run_id})
    member.save()
    shutil.rmtree(trained.directory)
    return member
