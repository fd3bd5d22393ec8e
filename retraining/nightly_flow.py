"""Nightly flow: train a challenger on the newest days, compare it with the champion, and use the better model."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run
from pydantic import BaseModel

from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.storage import is_ranker
from shunter.engine.stopping import StopConditions
from shunter.flows.train import train_on
from shunter.ingestion.cache import forget
from shunter.ingestion.sources.days import DayLog
from shunter.markdown import plain
from shunter.model_families import is_ranking
from shunter.python_processes import seconds_before_run
from shunter.requests import shown
from shunter.requests.training import check_loggers
from shunter.retraining.challenger import NightlyContext, challenge
from shunter.retraining.champion import open_champion, version_tags
from shunter.retraining.night_section import sides_table
from shunter.retraining.nightly_request import NightlyRequest
from shunter.retraining.nightly_runs import (
    NightlyResult,
    log_nightly_result,
    log_plan,
    nightly_runs_of,
    with_former_name,
)
from shunter.retraining.nightly_steps import choose_days, ingest_days, publish_pages
from shunter.retraining.plan import NightlyPlan, yesterday
from shunter.retraining.ranker_challenger import challenge_ranker, check_ranking_request
from shunter.retraining.trend import LABELS
from shunter.settings import Settings
from shunter.tasks.evidence import recorded_run
from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.run_log import REPORT, announce, show_result
from shunter.tasks.run_state import StateFolder
from shunter.tasks.spending import charged, spending
from shunter.tasks.step_clock import StepClock
from shunter.tasks.tracked_run import logged_to
from shunter.tasks.upkeep import tidy
from shunter.tracking.convention import data_params, request_params
from shunter.tracking.registry.model_keys import check_model_key
from shunter.tracking.registry.versions import champion_of, tag_version, version_by_number, version_of_run
from shunter.tracking.reports import log_request
from shunter.tracking.runs import INTERRUPTED, closing, finish, open_run, start_run


class NightlyRunState(BaseModel):
    """State from which an interrupted nightly run resumes."""

    run_id: str
    day: date
    champion: int | None


@flow(name="nightly", flow_run_name=named_by("register_as", "data"), on_failure=[notify], on_crashed=[notify])
def nightly(request: Annotated[NightlyRequest, shown(NightlyRequest())] = NightlyRequest()) -> NightlyResult:
    """Train a challenger on the newest days, and promote it only if it beats the champion on a later day.

    Args:
        request: Where the days are, how models are evaluated, and the limits of the training.
    """
    request = with_former_name(request)
    if is_ranking(request.model):
        check_ranking_request(request)
    check_loggers(request.log_to)
    check_model_key()
    clock = StepClock(seconds_before_run())
    newest = request.days.day or yesterday(datetime.now(UTC), request.days.zone)
    home = Settings().nights_directory / request.registered_name
    with StateFolder(home / "state", "night", lock=home / "lock") as state:
        nights = nightly_runs_of(request.registered_name)
        missing = nights[0].tags.get("nightly.missing_days", "") if nights else ""
        missing_before = sorted(date.fromisoformat(day) for day in missing.split(",") if day)
        plan, logs = choose_days(request, newest, home / "days", missing_before)
        evaluated = [(date.fromisoformat(run.tags["nightly.day"]), run) for run in nights if "nightly.day" in run.tags]
        earlier = next((run for day, run in evaluated if day == plan.held_out), None)
        # A later evaluation day exists only if a clock was set back.
        later = max((day for day, _ in evaluated if day > plan.held_out and request.days.day is None), default=None)
        if earlier:
            reason = f"{plan.held_out} is the newest usable day and was the evaluation day before: nothing has changed."
            night = _unchanged(request, plan, earlier.run_id, reason)
        elif later:
            reason = (
                f"By the clock {plan.held_out} is the newest usable day, but {later} was an evaluation day already, so "
                "nothing has changed: check the clock, or name the day."
            )
            night = _unchanged(request, plan, nights[0].run_id, reason)
        else:
            night = state.recovering(_night, request, plan, logs, state, clock)
        state.finish()
    if night.outcome == "promoted":
        announce("promoted", request.registered_name, night.registered, night.reason)
    elif night.outcome == "kept":
        announce("not-promoted", request.registered_name, None, night.reason)
    _publish(night, publish_pages(night.run_id, request.registered_name))
    tidy()
    return night


def _unchanged(request: NightlyRequest, plan: NightlyPlan, run_id: str, reason: str) -> NightlyResult:
    """Return the result of a nightly run that changes nothing, because the day or a later day was evaluated before."""
    champion = champion_of(request.registered_name)
    return NightlyResult(
        outcome="already judged",
        day=plan.held_out,
        reason=reason,
        findings=plan.findings,
        champion=champion.version if champion else None,
        run_id=run_id,
    )


def _night(
    request: NightlyRequest, plan: NightlyPlan, logs: Mapping[date, DayLog], state: StateFolder, clock: StepClock
) -> NightlyResult:
    """Train a challenger, compare it with the champion, and promote it if it is better, in one MLflow run."""
    identity = _begin(request, plan, state)
    with (
        logged_to(request.log_to, identity.run_id, f"{request.registered_name}-{plan.held_out}-{identity.run_id[:8]}"),
        closing(identity.run_id, is_resumable=True),
        clock.command.kept_in(state.directory),
        spending(state, clock.command, outside=clock.energy) as spent,
        recorded_run(identity.run_id, "nightly", request, spent=spent) as notes,
    ):
        stop = StopConditions(clock.command, (spent.budget(charged(request)).exhausted,))
        context = NightlyContext(request, plan, logs, state, identity.run_id, stop, notes)
        if identity.champion is None:
            night = _first_night(context)
        else:
            version = version_by_number(request.registered_name, identity.champion)
            champion = open_champion(version, state.directory / "champion")
            night = (challenge_ranker if is_ranker(champion.files.model) else challenge)(context, champion)
        run = open_run(identity.run_id)
        start = {"start": spent.start} if spent.start else {}
        run.log_power(spent.total)
        run.log_command(clock.command.wall_seconds, {**start, "work": spent.total})
        log_nightly_result(night)
    return night


def _begin(request: NightlyRequest, plan: NightlyPlan, state: StateFolder) -> NightlyRunState:
    """Resume an interrupted nightly run, or begin a new one if the day or the champion has changed since."""
    name = request.registered_name
    found, champion = state.recall("identity", NightlyRunState), champion_of(name)
    current = champion.version if champion else None
    if found is not None:
        registered = version_of_run(name, found.run_id)
        may_be = {found.champion, registered.version if registered else found.champion}
        if found.day != plan.held_out or current not in may_be:
            finish(found.run_id, INTERRUPTED, reason="It was interrupted, and another day or champion came meanwhile.")
            state.clear()
            found = None
    run_id = start_run(
        f"{name} {plan.held_out}", "nightly", flow_run_id=flow_run.get_id(), run_id=found.run_id if found else None
    )
    identity = NightlyRunState(run_id=run_id, day=plan.held_out, champion=found.champion if found else current)
    state.remember("identity", identity)
    open_run(run_id).log_params(request_params(request))
    log_request(run_id, request, "nightly")
    return identity


def _first_night(context: NightlyContext) -> NightlyResult:
    """Run a full training if there is no champion; its model is tested on the newest day and becomes the champion."""
    request, plan, run_id = context.request, context.plan, context.run_id
    log_plan(run_id, request.registered_name, plan, plan.training)
    days = [context.logs[day] for day in (*plan.training, plan.held_out)]
    dataset = ingest_days(request, days, held_out=plan.held_out, base=None)
    open_run(run_id).log_params(data_params(dataset))
    files = ",".join(str(path) for log in days for path in log.source.paths)
    summary = train_on(request.first_training(files), dataset, StepClock())
    open_run(run_id).set_tags({"nightly.training_run": summary.run_id})
    if isinstance(summary.result, EnsembleResult):
        test = {name: value for name, value in summary.result.test.figures.items() if name in LABELS}
        open_run(run_id).log_metrics({f"nightly/challenger_{name}": value for name, value in test.items()})
    version = version_of_run(request.registered_name, summary.run_id)
    assert version is not None, "a training run that ends without an error has registered its model"
    reason = (
        f"There was no champion of {version.name!r}: version {version.version} was trained on {len(plan.training)} "
        f"day(s) and has {quality_as_text(summary.result)} on {plan.held_out}."
    )
    refused = summary.registered.not_promoted
    if refused is not None:
        reason = f"{reason} {refused}"
    tag_version(version, version_tags(plan.training, None), note=reason)
    forget(dataset)
    if refused is not None:
        return context.ends("not promoted", reason, None, registered=version.version)
    return context.ends("first champion", reason, version.version, registered=version.version)


def quality_as_text(result: EnsembleResult | TrainedRanker) -> str:
    """Return the test metric by which nightly runs compare models, as text."""
    if isinstance(result, TrainedRanker):
        return f"NDCG@20 {result.test.ndcg20:.4f}"
    if result.test.rmse is not None:
        return f"RMSE {result.test.rmse:.4f}"
    return f"log loss {result.test.logloss:.5f}"


def _publish(night: NightlyResult, trend: str) -> None:
    """Publish outcome, findings, metrics of both models and the table of the newest nightly runs in the Prefect UI."""
    findings = "".join(f"\n- {plain(finding.words)}" for finding in night.findings)
    text = f"{findings}\n\n{sides_table(night)}\n\n{trend}"
    files = {**REPORT, "Trend of all nightly runs": "trend.html"}
    show_result("nightly", f"{night.day}: {night.outcome}. {night.reason}", text, run_id=night.run_id, files=files)
