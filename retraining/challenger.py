"""Nightly run with a champion: train a challenger from its weights, compare both, and promote the better model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.stopping import StopConditions
from shunter.engine.table_files import TABLES_IN_FILES
from shunter.engine.trained_model import TrainedModel
from shunter.errors import RequestError
from shunter.hardware.devices.power_limit import limited
from shunter.hardware.types import HardwareProfile
from shunter.ingestion.cache import forget
from shunter.ingestion.sources.days import DayLog
from shunter.planner.decide import Decision
from shunter.planner.history.record import FlowNotes
from shunter.planner.predict.observe import expect
from shunter.reporting.card.quality import quality_of_files
from shunter.requests import Promote
from shunter.retraining.champion import (
    Champion,
    Origin,
    check_same_log,
    choose_origin,
    version_tags,
    warm_start_from,
    with_lower_rates,
)
from shunter.retraining.comparison import draw_comparison
from shunter.retraining.degradation import DayCheck, check_day, degradation_of, promise_tags, respond
from shunter.retraining.nightly_request import NightlyRequest, WhenBroken
from shunter.retraining.nightly_runs import NightlyResult, Outcome, log_comparison, log_plan, store_increment
from shunter.retraining.nightly_steps import evaluate_challenger, ingest_days
from shunter.retraining.plan import NightlyPlan
from shunter.tasks.accelerators import reserve_for_flow
from shunter.tasks.evidence import record_trainings
from shunter.tasks.profile import profile_hardware
from shunter.tasks.register import doubt_of, misses, register
from shunter.tasks.run_context import exploration_limit
from shunter.tasks.run_log import announce
from shunter.tasks.run_state import StateFolder
from shunter.tasks.select import log_decision, select
from shunter.tasks.train import train_member
from shunter.tracking.convention import data_params, quality_metrics
from shunter.tracking.evidence import data_key
from shunter.tracking.profiles import log_pictures
from shunter.tracking.promise import PREFIX
from shunter.tracking.registry.champion_comparison import ChampionComparison
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.registry.ranker_comparison import RankingComparison
from shunter.tracking.registry.versions import ModelFiles, Version, champion_of, tag_version, version_of_run
from shunter.tracking.runs import open_run

PATIENCE = 1  # epochs without improvement: with few days, most of them known, later epochs are even worse

LAST_DAY = "last-day"
Judgement = TypeVar("Judgement", ChampionComparison, RankingComparison)


@dataclass(frozen=True)
class NightlyContext:
    """Context of one nightly run."""

    request: NightlyRequest
    plan: NightlyPlan
    logs: Mapping[date, DayLog]
    state: StateFolder
    run_id: str
    stop: StopConditions
    notes: FlowNotes = field(default_factory=FlowNotes)

    def ends(
        self,
        outcome: Outcome,
        reason: str,
        champion: int | None,
        *,
        comparison: ChampionComparison | RankingComparison | None = None,
        registered: int | None = None,
    ) -> NightlyResult:
        """Return the result of the nightly run with this outcome, and with the plan's day and findings."""
        return NightlyResult(
            outcome=outcome,
            day=self.plan.held_out,
            reason=reason,
            findings=self.plan.findings,
            judgement=comparison,
            champion=champion,
            registered=registered,
            run_id=self.run_id,
        )

    def gains_file(self, name: str) -> Path:
        """Return the file with the bootstrap gains of a comparison."""
        return self.state.directory / f"{name}.npy"

    def compared(self, name: str, kind: type[Judgement], evaluate: Callable[[Path], Judgement]) -> Judgement:
        """Compare both models on the evaluation day by `evaluate`, which gets the file for the bootstrap gains.

        A resumed nightly run returns its stored comparison.
        """
        comparison = self.state.recall(name, kind)
        if comparison is None:
            comparison = evaluate(self.gains_file(name))
            log_comparison(self.run_id, name, comparison)
            self.state.remember(name, comparison)
        return comparison

    def draw(self, name: str, comparison: ChampionComparison | RankingComparison, outcome: Outcome) -> None:
        """Plot a comparison with the outcome of the nightly run, and log the plot to the MLflow run."""
        gains = self.gains_file(name)
        if gains.exists():  # an earlier version of the project stored no such file
            picture = draw_comparison(comparison, np.load(gains), gains.with_suffix(".png"), outcome)
            log_pictures(self.run_id, [picture])


def challenge(context: NightlyContext, champion: Champion) -> NightlyResult:
    """Train a challenger on the days that the champion was not trained on, and compare both on the evaluation day."""
    request, plan = context.request, context.plan
    days = [day for day in plan.training if request.days.relearn or day not in champion.learned]
    log_plan(context.run_id, request.registered_name, plan, days)
    check_same_log(champion, context.logs[plan.held_out].schema, request.registered_name)
    reason = why_nothing_new(plan, champion, days)
    if reason and plan.held_out in champion.learned:
        return context.ends("nothing new", reason, champion.version.version)
    check = _check_promise(context, champion)
    night, winner, dataset = _score_alone(context, champion, reason) if reason else _contest(context, champion, days)
    if request.challenger.learn_last_day and night.outcome != "rolled back":
        night = _learn_evaluated_day(context, winner, night)
    if dataset is not None:
        forget(dataset)
    return night if check is None else night.model_copy(update={"findings": (*night.findings, check.finding)})


def _score_alone(context: NightlyContext, champion: Champion, reason: str) -> tuple[NightlyResult, Champion, None]:
    """Evaluate the champion on the evaluation day without a challenger; return (result, champion, None)."""
    night = context.ends("nothing new", reason, champion.version.version)
    day, files = context.plan.held_out, champion.files
    comparison = evaluate_challenger(context.request, context.logs[day], files, files, context.gains_file("alone"))
    rate = comparison.base_rate or 0.0
    degradation = degradation_of(comparison, champion.version, context.run_id, day, base_rate=rate)
    night = respond(night, degradation, champion.version.name, context.request.promotion.when_broken)
    return night, champion, None


def _check_promise(context: NightlyContext, champion: Champion) -> DayCheck | None:
    """Check once if the champion keeps its promised quality on the evaluation day; tag the version, report failure."""
    check = context.state.recall("promise", DayCheck)
    if check is None:
        day, request = context.plan.held_out, context.request
        check = check_day(champion.version, champion.files, context.logs[day], day, seed=request.seed)
        if check is None:
            return None
        tag_version(champion.version, {f"{PREFIX}last_check": check.words})
        open_run(context.run_id).log_metrics(check.metrics)
        context.state.remember("promise", check)
        if check.is_broken:
            announce("promise-broken", request.registered_name, check.version, check.words)
    return check


def why_nothing_new(plan: NightlyPlan, champion: Champion, new: Sequence[date]) -> str | None:
    """Return the reason why no challenger is trained, in one sentence; None if a challenger can be trained."""
    number = champion.version.version
    if plan.held_out in champion.learned:
        return f"Version {number} has learned {plan.held_out}, so it cannot be evaluated on that day and stays."
    if not new:
        return f"Version {number} has learned every usable day before {plan.held_out}, so it stays."
    return None


def _contest(
    context: NightlyContext, champion: Champion, days: Sequence[date]
) -> tuple[NightlyResult, Champion, Dataset]:
    """Train a challenger and promote it if it is better; return (result, champion from now on, data set)."""
    logs, held_out = context.logs, context.plan.held_out
    origin = choose_origin(champion, logs[days[-1]])
    dataset = ingest_days(
        context.request, [*(logs[day] for day in days), logs[held_out]], held_out=held_out, base=champion.files
    )
    params = data_params(dataset)
    open_run(context.run_id).log_params(params)
    context.notes.data = data_key(params)
    trained = _train(
        context, dataset, champion.files, origin, name="challenger", epochs=context.request.challenger.nightly_epochs
    )
    record_trainings(context.notes, [trained])
    context.notes.auc = trained.validation.auc
    files = ModelFiles(trained.directory, dataset.directory / "encoder")
    comparison = _compare(context, "judgement", champion.files, files)
    degradation = degradation_of(
        comparison, champion.version, context.run_id, held_out, base_rate=dataset.splits["test"].base_rate
    )
    obstacle = _obstacle(context, champion, comparison, trained, dataset)
    outcome: Outcome = "promoted" if obstacle is None else "kept"
    if obstacle is not None:
        night = context.ends(outcome, obstacle, champion.version.version, comparison=comparison)
        night = respond(night, degradation, champion.version.name, context.request.promotion.when_broken)
        context.draw("judgement", comparison, night.outcome)
        return night, champion, dataset
    context.draw("judgement", comparison, outcome)
    learned = sorted({*champion.learned, *days})
    registered = register(
        context.run_id,
        dataset,
        trained.directory,
        context.request.registered_name,
        metrics=_figures(trained, comparison),
        tags={**promise_tags(champion.version.tags), **version_tags(learned, origin.hyperparameters)},
    )
    overtaken = "" if comparison.is_better else " The champion was no better than the base rate of the day any more."
    reason = (
        f"Version {registered.version} replaces version {champion.version.version}: {comparison.explain()}{overtaken}"
    )
    version = record_version(context, registered, context.run_id, reason)
    store_increment(context.run_id, registered.name, registered.version, since=champion.version.version)
    night = context.ends(outcome, reason, registered.version, comparison=comparison, registered=registered.version)
    night = respond(night, degradation, registered.name, context.request.promotion.when_broken)
    return night, Champion(version, files, frozenset(learned)), dataset


def _obstacle(
    context: NightlyContext, champion: Champion, comparison: ChampionComparison, trained: TrainedModel, dataset: Dataset
) -> str | None:
    """Return the reason why the challenger does not replace the champion, in one sentence; None if it does."""
    number, limits = champion.version.version, context.request.limits
    if not comparison.is_better and not _has_overtaken(context, comparison, trained, dataset):
        return f"Version {number} stays the champion: {comparison.explain()}"
    if misses(limits, trained.validation.auc):
        return (
            f"Version {number} stays the champion: the challenger is better, but has AUC {trained.validation.auc:.4f} "
            f"on validation, below --min-auc {limits.min_auc:g}."
        )
    is_checked = context.request.promotion.promote != Promote.ALWAYS
    doubt = _doubt(context, trained, dataset) if is_checked else None
    if doubt is not None:
        return (
            f"Version {number} stays the champion: the challenger is better, but {doubt}; with --promote always it "
            "would take the place."
        )
    return changed_meanwhile(context, number)


def changed_meanwhile(context: NightlyContext, number: int) -> str | None:
    """Return a sentence if the champion was replaced since the nightly run began; None otherwise."""
    now = champion_of(context.request.registered_name)
    ours = version_of_run(context.request.registered_name, context.run_id)
    if now is None or now.version not in {number, ours.version if ours else number}:
        return (
            f"The challenger is better than version {number}, but another champion was chosen meanwhile "
            f"({'none' if now is None else f'version {now.version}'}), which stays."
        )
    return None


def _has_overtaken(
    context: NightlyContext, comparison: ChampionComparison, trained: TrainedModel, dataset: Dataset
) -> bool:
    """Return True if the champion is no better than the base rate of the day, but the challenger is.

    After a drift the improvement may be too small or too uncertain for the required margin. A champion that is worse
    than a constant prediction is replaced even then.
    """
    may_replace = context.request.promotion.when_broken == WhenBroken.PROMOTE
    if not may_replace or not comparison.is_overtaken(dataset.splits["test"].base_rate):
        return False
    return _doubt(context, trained, dataset) is None


def _doubt(context: NightlyContext, trained: TrainedModel, dataset: Dataset) -> str | None:
    """Return the reason why a challenger may be no better than the base rate of its test rows; None if it is better."""
    execution = execution_of(trained.placement)
    return doubt_of(quality_of_files(trained.directory, dataset, execution, seed=context.request.seed))


def _learn_evaluated_day(context: NightlyContext, winner: Champion, night: NightlyResult) -> NightlyResult:
    """Train the winner on the evaluation day too; register the new model if it wins on the day's test part."""
    day = context.plan.held_out
    log = context.logs[day]
    dataset = ingest_days(context.request, [log], held_out=None, base=winner.files)
    origin = choose_origin(winner, log)
    context.notes.beside = (LAST_DAY,)
    trained = _train(context, dataset, winner.files, origin, name=LAST_DAY, epochs=1)
    files = ModelFiles(trained.directory, dataset.directory / "encoder")
    comparison = _compare(context, "last-day", winner.files, files, only_test_part=True)
    is_checked = context.request.promotion.promote != Promote.ALWAYS
    doubt = _doubt(context, trained, dataset) if comparison.is_better and is_checked else None
    context.draw("last-day", comparison, "promoted" if comparison.is_better and doubt is None else "kept")
    if not comparison.is_better or doubt is not None:
        words = comparison.explain() if doubt is None else f"{doubt}."
        reason = f"{night.reason} Training on the evaluation day brought no gain: {words}"
        forget(dataset)
        return night.model_copy(update={"reason": reason})
    assert trained.run_id is not None, "a night's training runs are tracked"
    registered = register(
        trained.run_id,
        dataset,
        trained.directory,
        context.request.registered_name,
        metrics=_figures(trained, comparison),
        tags={
            **promise_tags(winner.version.tags),
            **version_tags(sorted({*winner.learned, day}), origin.hyperparameters),
        },
    )
    replaces = f"Version {registered.version}, which has learned {day} too, replaces it"
    reason = f"{night.reason} {replaces}: {comparison.explain()}"
    open_run(trained.run_id).log_metrics(comparison.headline())
    record_version(context, registered, trained.run_id, reason)
    store_increment(trained.run_id, registered.name, registered.version, since=winner.version.version)
    forget(dataset)
    figures = {"reason": reason, "champion": registered.version, "registered": registered.version}
    return night.model_copy(update={**figures, "outcome": "promoted"})


def _train(
    context: NightlyContext, dataset: Dataset, start: ModelFiles, origin: Origin, *, name: str, epochs: int
) -> TrainedModel:
    """Train a model from the weights in `start`, with the nightly run's placement; resume an interrupted training."""
    request, state, run_id = context.request, context.state, context.run_id
    warm_start = warm_start_from(start, origin.member, dataset)
    known = sum(len(one.now) for one in warm_start.rows.values())
    if not known:
        raise RequestError(
            f"The champion of {request.registered_name!r} was trained on other data, since it knows none "
            "of the values in these days: name another model with --register-as, and the first nightly run "
            "trains it."
        )
    open_run(run_id).set_tags({f"nightly.{name}_origin": origin.explain(known, sum(dataset.features.table_rows))})
    with reserve_placement(context, dataset, request.one_training()) as (decision, profile):
        placement = decision.placement
        if decision.tier_miss_rate is not None:  # was predicted for the requested model, not for the champion's model
            shortfall = TABLES_IN_FILES.load("expected_miss_rate")(placement, dataset, origin.spec, epochs=epochs)
            open_run(run_id).log_metrics({"prediction.tier_miss_rate": shortfall})
        return train_member(
            TrainingJob(
                dataset,
                origin.spec,
                with_lower_rates(origin.hyperparameters, request.challenger.learning_rate_share),
                execution_of(placement),
                Schedule(max_epochs=epochs, patience=PATIENCE, seed=request.seed),
                warm_start=warm_start,
            ),
            placement,
            state.directory / name,
            name=name,
            parent_run_id=run_id,
            should_stop=context.stop.also(exploration_limit(context.stop.clock, decision, span=name)).check,
            expected=expect(dataset, origin.spec, placement, profile, decision.observations),
        )


@contextmanager
def reserve_placement(
    context: NightlyContext, dataset: Dataset, request: NightlyRequest
) -> Iterator[tuple[Decision, HardwareProfile]]:
    """Reserve an accelerator for the training runs of the nightly run; yield the decision and its profile.

    The first training run determines the placement.
    """
    decision, profiles = context.state.recall("decision", Decision), profile_hardware()
    with reserve_for_flow(profiles, decision=decision) as held:
        if decision is None:
            decision = select(dataset, request, held.of(profiles))
            context.state.remember("decision", decision)
        context.notes.decision = decision
        held.keep(decision.placement)
        log_decision(context.run_id, decision)
        placement = decision.placement
        profile = next(one for one in profiles if one.accelerator.name == placement.accelerator)
        with limited(placement.accelerator, placement.power_limit_watts):
            yield decision, profile


def _compare(
    context: NightlyContext, name: str, champion: ModelFiles, challenger: ModelFiles, *, only_test_part: bool = False
) -> ChampionComparison:
    log = context.logs[context.plan.held_out]
    evaluate = partial(evaluate_challenger, context.request, log, champion, challenger, only_test_part=only_test_part)
    return context.compared(name, ChampionComparison, evaluate)


def record_version(context: NightlyContext, registered: RegisteredModel, run_id: str, reason: str) -> Version:
    """Write the reason of the registration to the description of the model version."""
    version = version_of_run(registered.name, run_id)
    assert version is not None, "it was registered a moment ago"
    tag_version(version, {"nightly.day": context.plan.held_out.isoformat()}, note=reason)
    return version


def _figures(trained: TrainedModel, comparison: ChampionComparison) -> dict[str, float]:
    """Return MLflow metrics of a new version: quality on validation, and loss on the evaluation day."""
    quality = {name: float(value) for name, value in quality_metrics(trained.validation).items()}
    rmse = comparison.challenger_rmse
    judged = {"logloss": comparison.challenger_logloss} if rmse is None else {"rmse": rmse}
    return {**quality, **{f"quality.test.{name}": value for name, value in judged.items()}}
