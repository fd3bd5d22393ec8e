"""Steps from the chosen placement to a registered model; the flow calls the same methods for every kind of model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.execution import execution_of
from shunter.engine.overrides import check_overrides, read_overrides
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.stopping import JOB, StopReason
from shunter.engine.trained_model import TrainedModel
from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.hardware.types import Placement
from shunter.label_losses import LOG_LOSS
from shunter.model_families import MODEL_FAMILIES, PROBLEMS, problem_of
from shunter.reporting.card.figures import BaselineFigures, QualityFigure
from shunter.reporting.card.promise import Promise, measure_promise
from shunter.reporting.card.ranking_baselines import RankingBaseline
from shunter.requests import JobRequest, TrainRequest
from shunter.requests.support import UnsuitableOptionError, check_support
from shunter.search.job import SearchJob
from shunter.search.minutes import BASELINES, MEMBERS, Minutes
from shunter.search.noise import Noise, noise_of
from shunter.search.result import TuneResult
from shunter.tasks.baselines import candidates_of, train_baselines, train_rivals
from shunter.tasks.card import describe_version, write_card
from shunter.tasks.ensemble import (
    EnsembleLimits,
    build_ensemble,
    champions_before,
    distil,
    minutes_as_text,
    reserve_ending,
    scoring_placement,
    train_members,
    trainings_after,
)
from shunter.tasks.evidence import record_search, record_trainings
from shunter.tasks.register import register_result
from shunter.tasks.report import report
from shunter.tasks.run_context import RunContext
from shunter.tasks.run_log import log_outcome, log_sentence
from shunter.tasks.step_clock import StepClock
from shunter.tasks.training_plans import planner, trial_placement
from shunter.tasks.tune import observer_of, publish_noise, publish_search, tune
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.runs import open_run


class TrainingOutcome(Frozen):
    """Result of a recipe.

    Attributes:
        tuned: Result of the search; None for a graph model.
        result: Resulting model.
        registered: Registered version of the result.
        baselines: Baselines, with their comparison to the result.
        tried: Trained settings of a graph model.
        reason: Reason for the choice of a graph model.
        noise: Variation of the metric of the search between seeds; None if no setting was trained twice.
        towers: Quality of a model with towers compared with a flat model, in one sentence; None without towers.
        promise: Quality that the version guarantees; None if none was requested.
        minutes: Text on how the minutes of the search were used; None without a limit.
        stop_reason: Reason that ended the search early; None if there is none.
        quality: Metrics of click models on the test part, with their intervals.
        training_joules: Joules of search and training; None without a meter.
    """

    tuned: TuneResult | None
    result: EnsembleResult | TrainedRanker
    registered: RegisteredModel
    baselines: tuple[BaselineFigures | RankingBaseline, ...] = ()
    tried: tuple[TrainedRanker, ...] = ()
    reason: str = ""
    noise: Noise | None = None
    towers: str | None = None
    promise: Promise | None = None
    minutes: str | None = None
    stop_reason: StopReason | None = None
    quality: tuple[QualityFigure, ...] = ()
    training_joules: float | None = None


class Recipe(ABC):
    """Base class of the steps between the choice of a placement and a registered model."""

    def check(self, request: TrainRequest, dataset: Dataset) -> None:
        """Raise if the model cannot fulfil the request, before anything is measured.

        Raises:
            RequestError: The request needs something that the model cannot do.
        """
        check_label(request, dataset)
        overrides = read_overrides(request.model, request.architecture.settings)
        check_overrides(request.model, overrides, dataset.features)

    @abstractmethod
    def train(self, run: RunContext, clock: StepClock) -> TrainingOutcome:
        """Train and register the requested model."""

    def publish(self, run_id: str, dataset: Dataset, request: TrainRequest, end: Callable[[], None]) -> None:
        """Write the report page of the finished run; `end` logs the totals that the page shows."""
        report(run_id, dataset, request, end)


class EnsembleRecipe(Recipe):
    """Recipe of click models: search settings, train the best ones to completion and combine them with baselines."""

    def train(self, run: RunContext, clock: StepClock) -> TrainingOutcome:
        """Train baselines, search settings, train the members, combine all models and register the result."""
        placement = scoring_placement(run.decision.placement)
        minutes = Minutes.of(run.request.search, run.stop.clock, of_command=True, budget=run.budget)
        if run.request.training.plan is not None:
            planner().check(run, Path(run.request.training.plan))
        reserve_ending(minutes, run, clock)
        with clock.step("baselines"), minutes.clock.counting(BASELINES):
            ended = minutes.baselines_ended if minutes.is_limited else None
            baselines, rivals = train_baselines(run, ended), train_rivals(run, ended)
        joules_before = run.budget.joules
        with clock.step("tune"), run.stop.clock.counting(JOB):
            tuned = _tuned(run, minutes)
        with clock.step("train"), run.stop.clock.counting(JOB):
            members, noise, spent = _members(run, tuned, minutes)
        run.notes.seconds = run.stop.clock.seconds_of(JOB)
        training_joules = run.budget.joules_since(joules_before)
        with clock.step("ensemble"):
            candidates = [*candidates_of(members, baselines, run.request), *champions_before(run, placement)]
            with minutes.clock.counting(MEMBERS):
                candidates += distil(run.within(minutes.exhausted), tuned, candidates, placement)
            result = _combined(run, candidates, placement)
        with clock.step("card"):
            note_of = MODEL_FAMILIES.load_part(tuned.best.spec.family, "quality_note")
            towers = note_of(run.dataset.fingerprint, tuned, noise) if note_of else None
            promise = measure_promise(run.request, run.dataset, result, execution_of(placement))
            card = write_card(
                run.run_id,
                run.dataset,
                candidates,
                result,
                placement,
                baselines=[*baselines, *rivals],
                seed=run.request.seed,
                notes=[towers] if towers else [],
                promise=promise,
            )
        with clock.step("register"):
            registered = register_result(
                run.request,
                run.dataset,
                result,
                run.run_id,
                card.quality,
                execution=execution_of(placement),
                promise=promise,
            )
            describe_version(card, registered)
        log_outcome(result, registered, run.run_id, card.baselines)
        return TrainingOutcome(
            tuned=tuned,
            result=result,
            registered=registered,
            baselines=card.baselines,
            noise=noise,
            towers=towers,
            promise=promise,
            minutes=spent,
            stop_reason=tuned.stop_reason,
            quality=tuple(figure for task in card.quality for figure in task.figures),
            training_joules=training_joules,
        )


def _tuned(run: RunContext, minutes: Minutes) -> TuneResult:
    """Search the settings, and log the search to the run."""
    job = SearchJob(
        dataset=run.dataset,
        request=run.request,
        placement=trial_placement(run),
        directory=run.search_directory,
        keep=run.request.ensemble.most if run.processes == 1 else 0,
        seeds=trainings_after(run.request),
        parent_run_id=run.run_id,
        minutes=minutes,
        used_seconds=run.budget.seconds,
        used_joules=run.budget.joules or 0.0,
        observe=observer_of(run.dataset, run.profiles, run.request),
        pairing=run.pairing,
    )
    tuned = tune(job, should_stop=run.should_stop, place=run.cluster)
    record_search(run.notes, tuned)
    publish_search(run.run_id, tuned, job.directory)
    return tuned


def _members(
    run: RunContext, tuned: TuneResult, minutes: Minutes
) -> tuple[list[TrainedModel], Noise | None, str | None]:
    """Train the members; return them, the variation between seeds, and a text on how the minutes were used."""
    with minutes.clock.counting(MEMBERS):
        members = train_members(run, tuned, minutes)
    spent = minutes_as_text(minutes, tuned, members, run.request.search.trials_at_a_time)
    if spent:
        open_run(run.run_id).set_tags({"search.minutes": spent})
        log_sentence(spent)
    record_trainings(run.notes, members)
    noise = noise_of(members, run.request.training.select_by.value)
    publish_noise(run.run_id, noise)
    return members, noise, spent


def _combined(run: RunContext, candidates: Sequence[TrainedModel], placement: Placement) -> EnsembleResult:
    """Select the best ensemble of the candidates, score it, and note its validation AUC and NE in the record."""
    result = build_ensemble(
        run.dataset,
        candidates,
        placement,
        run.directory / "ensemble",
        parent_run_id=run.run_id,
        seed=run.request.seed,
        select_by=run.request.training.select_by.value,
        limits=EnsembleLimits.of(run.request.ensemble),
    )
    run.notes.auc, run.notes.ne = result.validation.auc, result.validation.ne
    return result


def check_label(request: JobRequest, dataset: Dataset) -> None:
    """Raise if the requested loss does not suit the data, or if an option does not suit the loss of a numeric label.

    Raises:
        RequestError: An option needs a probability, the model ranks items, or the loss needs groups.
    """
    from shunter.engine.loop.loss import group_field  # imports torch

    group_field(request.architecture.loss or LOG_LOSS, dataset)
    if dataset.features.number is None:
        return
    try:
        check_support(request.model, {**request.stated(), "loss": dataset.features.number.loss})
    except UnsuitableOptionError as error:
        raise RequestError(f"{error}.") from error


def recipe_of(model: str) -> Recipe:
    """Return the recipe of a model family."""
    return PROBLEMS.load(problem_of(model))()
