"""Execution of a trial: an executor trains a point with early stopping, and the outcome is logged to MLflow."""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.executors.role import Executor, Reading
from shunter.engine.job import Hooks, TrainingJob
from shunter.engine.memory import is_out_of_memory
from shunter.engine.results import EpochReport, TrainingFigures, TrainResult
from shunter.engine.stopping import ShouldStop, StopKind, StopReason
from shunter.errors import ProcessLostError, TooLargeError, TrackingError, TrainingError
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import EnergyReading, Placement
from shunter.models.counting import count_parameter_bytes
from shunter.models.spec import ModelSpec
from shunter.requests import Limits
from shunter.search.constraints import FinalTraining, Measured, format_violations, violations_of
from shunter.search.protocol import Cost, Outcome, Parameters, Space
from shunter.search.study.best_models import BestTrialModels
from shunter.search.study.families import FamilyComparison
from shunter.search.study.halving import Halving
from shunter.search.study.interrupted import FAILURE, may_try_again
from shunter.search.study.pair import OUT_OF_TIME, Repeated
from shunter.search.study.storage import begun_trials, outcome_of, trials_with_result
from shunter.tracking.callbacks import CalledTraining, call_on_trial, called
from shunter.tracking.convention import (
    epoch_metrics,
    model_params,
    placement_params,
    quality_metrics,
    schedule_params,
    training_metrics,
    training_stop_tags,
)
from shunter.tracking.evidence import Ending, ending_of, log_evidence
from shunter.tracking.learning import log_steps
from shunter.tracking.runs import Run, child_run
from shunter.tracking.training_evidence import mean_step_seconds, training_evidence

if TYPE_CHECKING:
    from optuna import Study, Trial

PARAMETERS, OUTCOME = "trial.parameters", "trial.outcome"  # tags of a trial's run, read by later searches
OUTCOMES = TypeAdapter(Outcome)
LONGEST_TEXT = 5_000  # largest number of characters in a tag; longer points are not stored
FEWEST_STEPS = 20  # smallest number of steps for a mean time; in fewer steps the slow first steps distort it
NOT_METERED = EnergyReading(joules=None, seconds=0.0, mean_watts=None, method="unavailable", source="not begun")


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """Context that all trials of a search share.

    Attributes:
        dataset: Data set; its test part is not used.
        space: Search space.
        schedule: Schedule of each training run.
        cost: Second objective besides NE, if any.
        limits: Limits of the user.
        final: Remaining time, energy and money for training the best settings.
        parent_run_id: MLflow run of the search.
        should_stop: Called after each step; a returned reason ends a training run, whose results so far count.
        study: Study with all trials, used to stop bad training runs early.
        best_models: Storage for the models of the best trials; None stores no models.
        observe: See `shunter.search.job.SearchJob`.
        comparison: Comparison of several families, which ends screenings early and trains a few points in full.
        placement: Placement of the search; parallel trials share its threads.
        repeated: Trial that this trial repeats at another placement; None for a trial of the search itself.
        exploration: Condition that ends an exploring trial; None for any other trial.
        peers: Numbers of the other trials that run at the same time, with which a trial is not compared.
        on_epoch: Called with the number of the trial and the report of an epoch; None: no call.
    """

    dataset: Dataset
    space: Space
    schedule: Schedule
    cost: Cost | None
    limits: Limits
    final: FinalTraining
    parent_run_id: str
    should_stop: ShouldStop
    study: "Study"
    best_models: BestTrialModels | None = None
    observe: Callable[[ModelSpec, Placement, float, float | None], StepObservation | None] | None = None
    comparison: FamilyComparison | None = None
    placement: Placement
    repeated: Repeated | None = None
    exploration: ShouldStop | None = None
    peers: frozenset[int] = frozenset()
    on_epoch: Callable[[int, EpochReport], None] | None = None

    def ended(self) -> StopReason | None:
        """Return the reason to end a trial's training run; None while it may continue."""
        return self.should_stop() or (self.exploration and self.exploration())


@dataclass(frozen=True)
class TrialEnd:
    """End of a trial.

    Attributes:
        outcome: Outcome of the trial.
        keep: Function that stores the trained model if it is among the best; called in the order of the trials.
    """

    outcome: Outcome
    keep: Callable[[], None] = lambda: None


def run_trial(trial: "Trial", parameters: Parameters, context: TrialContext, executor: Executor) -> TrialEnd:
    """Train a point and return the end of the trial, even if the training fails because of this point.

    Raises:
        RequestError: No point of the space can be trained, for instance because the batch is larger than the data.
        TrackingError: A store fails.
        ProcessLostError: The process of the training was killed, and the trial may be run again.
        KeyboardInterrupt: Ctrl-C; the trial stays open and is run again later.
    """
    started, called_training = time.perf_counter(), CalledTraining(f"trial-{trial.number}", "trial", None)
    try:
        with child_run(context.parent_run_id, called_training.name, "trial") as run:
            called_training = replace(called_training, run=run)
            trial.set_user_attr("run_id", run.run_id)
            attempt = _Attempt(trial, parameters, context, executor, run)
            try:
                end = attempt.end()
                call_on_trial(called_training, parameters, end.outcome)
                return end
            except BaseException as error:
                with contextlib.suppress(TrackingError):  # the error of the training is raised instead
                    attempt.keep_evidence(ending_of(error=error))
                raise
    except Exception as error:
        # Only this point failed if its loss diverged, memory was too small, or its process died.
        is_of_point = isinstance(error, TrainingError | TooLargeError) or is_out_of_memory(error)
        if not is_of_point or (isinstance(error, ProcessLostError) and may_try_again(trial)):
            raise
        trial.set_user_attr(FAILURE, str(error) or type(error).__name__)
        failed = Outcome(state="failed", seconds=time.perf_counter() - started)
        call_on_trial(called_training, parameters, failed)
        return TrialEnd(failed)


class _Attempt:
    """One training run of a trial."""

    def __init__(
        self, trial: "Trial", parameters: Parameters, context: TrialContext, executor: Executor, run: Run
    ) -> None:
        self.trial, self.context, self.executor, self.run = trial, context, executor, run
        self.parameters = parameters
        self.spec, self.hyperparameters = context.space.build(parameters)
        if context.repeated is not None:
            self.hyperparameters = context.repeated.adapted(self.hyperparameters)
        self.most_epochs = self.hyperparameters.most_epochs(context.schedule)
        self.halving = Halving(
            context.study,
            context.schedule.checks,
            context.schedule.max_epochs,
            own_epochs=self.most_epochs,
            peers=context.peers,
        )
        # Whether the trial is the screening of a family, or one that is trained in full in any case.
        self.is_screening = self.is_final = False
        if context.comparison is not None and context.repeated is None:
            own = trial.number, parameters, begun_trials(context.study)
            self.is_screening, self.is_final = context.comparison.is_screening(*own), context.comparison.is_final(*own)
        self.reports: list[EpochReport] = []
        execution = execution_of(executor.placement)
        self.job = TrainingJob(context.dataset, self.spec, self.hyperparameters, execution, context.schedule)
        self.meter: Reading | None = None

    @property
    def _reading(self) -> EnergyReading:
        return self.meter.reading if self.meter else NOT_METERED

    @cached_property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters; read only after a run has begun, since a model may be too large to build."""
        return count_parameter_bytes(self.spec, self.context.dataset.features)

    def end(self) -> TrialEnd:
        """Train the point and return its end."""
        context, run = self.context, self.run
        run.log_params(
            {
                **model_params(self.spec, self.hyperparameters),
                **schedule_params(context.schedule),
                **placement_params(self.executor.placement),
            }
        )
        # Preliminary tags, in case the trial's process dies; they are replaced at the end.
        first = {} if context.repeated else trial_tags(self.parameters, Outcome(state="failed"))
        run.set_tags({"trial.state": "failed", **first})
        started = time.perf_counter()
        figures = None
        with self.executor.meter() as self.meter, contextlib.suppress(_stopped()):
            hooks = called(
                Hooks(on_epoch=self._on_report, should_stop=context.ended),
                CalledTraining(f"trial-{self.trial.number}", "trial", run),
            )
            train = self.executor.figures if context.best_models is None else self.executor.run
            figures = train(self.job, hooks)
        if figures is not None and figures.stop_reason.is_exploration:
            self.trial.set_user_attr(OUT_OF_TIME, True)
        reading = self._reading
        outcome = self._came_to(figures, reading, time.perf_counter() - started)
        if context.cost is not None and context.cost not in outcome.costs:
            raise TrainingError(
                f"The {context.cost} of the trial could not be measured ({reading.source}), so trials "
                "cannot be compared: use another --search-cost."
            )
        self._log(outcome, figures, reading)
        if context.best_models is None or not isinstance(figures, TrainResult):
            return TrialEnd(outcome)
        return TrialEnd(outcome, partial(self._keep, context.best_models, figures, outcome, reading))

    def _keep(
        self, best_models: BestTrialModels, result: TrainResult, outcome: Outcome, reading: EnergyReading
    ) -> None:
        outcomes = {trial.number: outcome_of(trial) for trial in trials_with_result(self.context.study)}
        best_models.keep(
            self.trial.number,
            result,
            replace(self.job, schedule=replace(self.job.schedule, checks=())),  # checks do not change the weights
            {**outcomes, self.trial.number: outcome},
            placement=self.executor.placement,
            energy=reading,
            run_id=self.run.run_id,
        )

    def _on_report(self, report: EpochReport) -> None:
        """Log the progress of the training, and stop it if other trials were better after as many passes."""
        self.reports.append(report)
        if report.is_check:
            self.run.log_metrics({"search.check_ne": report.validation.ne}, step=report.samples_seen)
        else:
            self.run.log_metrics(epoch_metrics(report), step=report.epoch)
        if self.context.on_epoch is not None:
            self.context.on_epoch(self.trial.number, report)
        cost = self._costs(report, self._reading).get(self.context.cost) if self.context.cost else None
        # Compare the best result so far, because the weights of the best epoch are kept, not those of the last epoch.
        if self.context.repeated is not None:
            return
        reached = min(map(self._loss, self.reports))
        is_beaten = self.halving.is_beaten(self.trial, self._passes(report), reached, cost)
        if self.context.comparison is not None and self.is_screening:
            is_beaten = self._passes(report) >= self.context.comparison.passes
        if is_beaten and not self.is_final:
            raise _stopped()

    def _loss(self, report: EpochReport) -> float:
        return report.validation.loss_by(self.context.schedule.select_by)

    def _came_to(self, figures: TrainingFigures | None, reading: EnergyReading, seconds: float) -> Outcome:
        context, last = self.context, self.reports[-1]
        # Only validations at the end of an epoch count, since only these weights are kept. Without a complete epoch
        # the checks within the epoch count.
        epochs = [report for report in self.reports if not report.is_check] or self.reports
        best = min(epochs, key=self._loss)
        passes, longest = self._passes(last), self.most_epochs
        if figures and figures.stop_reason.kind is StopKind.PATIENCE:
            longest = min(longest, best.epoch + context.schedule.patience)
        measured = Measured(
            auc=best.validation.auc,
            memory_bytes=figures.peak_memory_bytes if figures else None,
            watts=reading.mean_watts,
            epochs=float(longest),
            pass_seconds=last.train_seconds / passes,
            pass_joules=None if reading.joules is None else reading.joules / passes,
        )
        return Outcome(
            state="complete" if figures else "pruned",
            validation_ne=figures.validation.ne if figures else best.validation.ne,
            selected=None if context.schedule.select_by == "ne" else self._loss(best),
            costs=self._costs(last, reading),
            violations=violations_of(measured, context.limits, context.final),
            seconds=seconds,
            joules=reading.joules,
            epochs=passes,
        )

    def _costs(self, report: EpochReport, reading: EnergyReading) -> dict[Cost, float]:
        costs: dict[Cost, float] = {
            "step_seconds": report.compute_seconds / report.step,
            "parameter_bytes": float(self.parameter_bytes),
        }
        if reading.joules is not None:
            costs["joules_per_sample"] = reading.joules / report.samples_seen
        return costs

    def _passes(self, report: EpochReport) -> float:
        return report.samples_seen / self.context.dataset.splits["train"].rows

    def _log(self, outcome: Outcome, figures: TrainingFigures | None, reading: EnergyReading) -> None:
        run = self.run
        run.log_energy(reading)
        run.log_metrics({f"search.{name}": value for name, value in outcome.costs.items()})
        # A repeated setting is not stored for later searches, whose points have no placement.
        taught = {} if self.context.repeated else trial_tags(self.parameters, outcome)
        tags = {"trial.state": outcome.state, **taught}
        if figures:
            # Logged one step after the last epoch, because MLflow shows the last step, and the values are those of the
            # best epoch.
            run.log_metrics(
                {
                    **quality_metrics(figures.validation),
                    **training_metrics(figures),
                    "training.best_epoch": figures.best_epoch,
                },
                step=figures.history[-1].epoch + 1,
            )
            tags |= training_stop_tags(figures.stop_reason)
        if not outcome.is_feasible:
            tags["search.violations"] = format_violations(outcome.violations)
        run.set_tags(tags)
        ended_early = StopReason(StopKind.SCREENING if self.is_screening else StopKind.PRUNED)
        self.keep_evidence(ending_of(reason=figures.stop_reason if figures else ended_early), figures)
        placement, last = self.executor.placement, self.reports[-1]
        seconds = mean_step_seconds(last, placement)
        if self.context.observe is not None and seconds is not None and last.step >= FEWEST_STEPS:
            watts = reading.mean_watts if reading.teaches_power else None
            observation = self.context.observe(self.spec, placement, seconds, watts)
            log_steps(run.run_id, [observation] if observation else [])

    def keep_evidence(self, ending: Ending, figures: TrainingFigures | None = None) -> None:
        """Log the training record, from which later durations are predicted, also of an interrupted training run."""
        progress = figures or (self.reports[-1] if self.reports else None)
        placement, energy = self.executor.placement, self._reading
        evidence = training_evidence("trial", ending, self.job, placement, progress=progress, energy=energy)
        log_evidence(self.run.run_id, evidence)


def _stopped() -> type[Exception]:
    from optuna import TrialPruned

    return TrialPruned


def trial_tags(parameters: Parameters, outcome: Outcome) -> dict[str, str]:
    """Return MLflow tags with the point and the outcome of a trial; no tags if the point is too long for a tag."""
    tags = {PARAMETERS: json.dumps(parameters), OUTCOME: OUTCOMES.dump_json(outcome).decode()}
    return tags if all(len(text) <= LONGEST_TEXT for text in tags.values()) else {}
