"""The main flow: from click log to registered model, every step a Prefect task, every figure in MLflow."""

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run
from pydantic import BaseModel, ConfigDict

from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.executors.registry import requested_cluster
from shunter.engine.executors.role import Choice, Cluster, Place
from shunter.engine.fixed import read_fixed
from shunter.engine.probes.measurement import measure
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.stopping import WORK, RunClock, StopConditions, StoppedError
from shunter.errors import DamagedDataError, QualityMissedError, ShunterError, find_cause
from shunter.hardware.devices.power_limit import limited
from shunter.hardware.reservation import Reservation, trainings_together
from shunter.hardware.types import EnergyReading, HardwareProfile
from shunter.ingestion.findings import findings_of_dataset
from shunter.model_families import MODEL_FAMILIES
from shunter.models.names import check_model
from shunter.planner.decide import Decision
from shunter.planner.explore import gone_back
from shunter.process_age import seconds_before_run
from shunter.reporting.card.figures import BaselineFigures, QualityFigure
from shunter.reporting.card.promise import Promise
from shunter.reporting.card.ranking_baselines import RankingBaseline
from shunter.requests import Objective, TrainRequest, shown
from shunter.search.noise import Noise
from shunter.search.result import TuneResult
from shunter.tasks.accelerators import hold, holds_all, installed_move, keep_chosen, tell
from shunter.tasks.evidence import keeping_evidence
from shunter.tasks.ingest import ingest
from shunter.tasks.notify import notify
from shunter.tasks.profile import profile_cluster, profile_hardware
from shunter.tasks.recipes import Outcome, recipe_of
from shunter.tasks.repetition import Repeat, Repetition, keep_choices
from shunter.tasks.run_context import RunContext, exploration_limit
from shunter.tasks.run_state import RunState, check_copies, forget_copies
from shunter.tasks.select import estimate, log_decision, select
from shunter.tasks.spending import Spent, charged, spending
from shunter.tasks.step_clock import StepClock
from shunter.tasks.tracked_run import tracked_run
from shunter.tasks.training_plans import processes_of
from shunter.tasks.tune import with_trials_at_a_time
from shunter.tracking.convention import account_metrics
from shunter.tracking.registry.model_keys import check_model_key
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.reports import log_config
from shunter.tracking.runs import open_run, system_metrics
from shunter.tracking.store import tracking_address


class TrainSummary(BaseModel):
    """The outcome of one training.

    Attributes:
        data_name: Name of the data set.
        rows: Rows of each split.
        quarantined_rows: Rows that could not be read.
        model: Model family.
        decision: The placement, the reason, and the table of all candidates.
        tuned: The settings tried, the best first; None for a graph model, see `tried`.
        result: Quality of the model that was kept, and whether it is an ensemble; for a graph model, of its ranking.
        step_seconds: Wall clock of each step of this attempt, of the process' start, and of what is in no step, which
            together is that of the attempt.
        energy: Energy of selection, tuning, training and ensemble, interrupted attempts included.
        registered: The version in MLflow's registry.
        run_id: The parent run in MLflow.
        tracking_uri: Address of the MLflow store, without its secrets.
        flow_run_name: Name of the run in Prefect.
        resumed: Whether an interrupted attempt was continued.
        stopped_because: The limit that ended the search early, None if none did.
        findings: What stands out in the data.
        baselines: What was trained first, beside the result.
        tried: Settings of a graph model that were tried, each trained.
        reason: Why a graph model was kept.
        noise: What chance does to the figure that the search ranks by; None where no setting was trained twice.
        towers: What towers cost against a flat model of as many parameters; None of a model without.
        promise: Quality that the version promises, with its bounds; None where none was asked for.
        minutes: Where the minutes of the search went; None where it had none.
        repeat: Whether the weights are those of the run that was repeated; None where none was.
        quality: Figures of click models on the test part, with their intervals.
    """

    model_config = ConfigDict(frozen=True)

    data_name: str
    rows: dict[str, int]
    quarantined_rows: int
    model: str
    decision: Decision
    tuned: TuneResult | None
    result: EnsembleResult | TrainedRanker
    step_seconds: dict[str, float]
    energy: EnergyReading
    registered: RegisteredModel
    run_id: str
    tracking_uri: str
    flow_run_name: str
    resumed: bool
    stopped_because: str | None
    findings: tuple[str, ...] = ()
    baselines: tuple[BaselineFigures | RankingBaseline, ...] = ()
    tried: tuple[TrainedRanker, ...] = ()
    reason: str = ""
    noise: Noise | None = None
    towers: str | None = None
    promise: Promise | None = None
    minutes: str | None = None
    repeat: Repeat | None = None
    quality: tuple[QualityFigure, ...] = ()


@flow(name="train", flow_run_name="train-{request.data}", on_failure=[notify], on_crashed=[notify])
def train(
    request: Annotated[TrainRequest, shown(TrainRequest())] = TrainRequest(),
    fresh: bool = False,
    repeat: str = "",
) -> TrainSummary:
    """Train a recommender within the limits and register it.

    Args:
        request: The data, the limits, the objective and the effort.
        fresh: Start anew instead of resuming an interrupted run of the same request.
        repeat: A finished training that is repeated bit by bit: its id in MLflow, the beginning of one, its name, or
            `latest`. Of the request only the name of the registered model and when it is promoted count then. Empty:
            none.
    """
    repetition = Repetition.of(repeat, request.register_as, request.promote) if repeat else None
    if repetition is not None:
        request = repetition.request
    check_model(request.model)
    request.search.check_is_installed()
    request.ensemble.check_is_installed()
    read_fixed(request.model, request.architecture.set)
    check_model_key()
    clock = StepClock(seconds_before_run())
    with clock.step("ingest"):
        dataset = ingest(request)
    try:
        return train_on(request, dataset, clock, fresh=fresh, repetition=repetition)
    except ShunterError as error:
        if find_cause(error, DamagedDataError) is None:
            raise
        tell(str(find_cause(error, DamagedDataError)))
    with clock.step("ingest"):  # the damaged data set is in the quarantine, and the run resumes on the same data
        dataset = ingest(request)
    return train_on(request, dataset, clock, repetition=repetition)


def train_on(
    request: TrainRequest,
    dataset: Dataset,
    clock: StepClock,
    *,
    fresh: bool = False,
    repetition: Repetition | None = None,
) -> TrainSummary:
    """Train on what was ingested, register the result, and go on with an interrupted run; see `train`."""
    recipe = recipe_of(request.model)
    recipe.check(request, dataset)
    check_copies(request)
    with requested_cluster(request.nodes) as cluster:
        with clock.step("profile"):
            profiles = profile_cluster(cluster, processes_of(request)) if cluster else profile_hardware(request.model)
        purpose = repetition.purpose if repetition else "train"
        with RunState(request, dataset, profiles[0].host, fresh=fresh, purpose=purpose) as state:
            if repetition is not None:
                repetition.begin(state, dataset)
            job = _Job(request.named_after(dataset.name), dataset, profiles, state, clock, cluster, repetition)
            try:
                summary = state.recovering(_train_held, job)
            except (StoppedError, QualityMissedError) as error:
                if not _goes_back(state, clock.command, error):
                    raise
                summary = state.recovering(_train_held, job)
            with clock.step("report"):  # before the end, for a kill may come meanwhile, too
                recipe.publish(summary.run_id, dataset, request)
            state.finish()
            forget_copies(request, dataset)
    account = clock.account()
    of_run = open_run(summary.run_id)
    of_run.log_metrics(account_metrics(account))
    minutes = summary.minutes
    if minutes is not None:
        minutes = f"{minutes} The command took {sum(account.values()) / 60:.1f}."
        of_run.set_tags({"search.minutes": minutes})
    return summary.model_copy(update={"step_seconds": account, "minutes": minutes})


@dataclass(frozen=True)
class _Job:
    """What is asked, with what it is done, and what earlier attempts at it have left.

    Attributes:
        request: The data, the limits, the objective and the effort.
        dataset: What was ingested.
        profiles: Profiles of the accelerators that may be used.
        state: What earlier attempts have left.
        clock: What the steps take.
        cluster: The Ray cluster whose nodes train instead of this machine; None for this machine.
        repetition: The run that is repeated; None where none is.
    """

    request: TrainRequest
    dataset: Dataset
    profiles: list[HardwareProfile]
    state: RunState
    clock: StepClock
    cluster: Cluster | None
    repetition: Repetition | None


def _train_held(job: _Job) -> TrainSummary:
    """One training, with the accelerators that it may use kept from others."""
    here = [] if job.cluster else job.profiles  # Ray keeps trainings off each other's nodes
    together = trainings_together(job.request, job.profiles, processes_of(job.request))
    chosen = job.state.recall("decision", Decision)
    foreseen = None if job.cluster else cache(partial(estimate, job.dataset, job.request, job.profiles))
    with job.clock.command.kept_in(job.state.directory), ExitStack() as stack:
        with job.clock.command.paused():
            priority = job.request.training.priority
            held = stack.enter_context(
                hold(here, together=together, decision=chosen, estimate=foreseen, priority=priority)
            )
        better = None
        may_move = job.repetition is None and together == 1
        if foreseen is not None and may_move and not holds_all(held, job.profiles):
            move = installed_move("machine")
            better = move(held, foreseen) if move else None
        return _train_tracked(job if job.cluster else replace(job, profiles=held.of(job.profiles)), held, better)


def _goes_back(state: RunState, clock: RunClock, error: Exception) -> bool:
    """Return True if an exploration came to nothing; its state but what was spent gives way to the best known."""
    if isinstance(error, StoppedError) and not error.is_exploration:
        return False
    decision, spent = state.recall("decision", Decision), state.recall("spent", Spent)
    if decision is None or decision.exploration is None:
        return False
    decision = gone_back(decision, str(error))
    tell(f"{decision.placement.label} takes over, the best known: {error}")
    state.clear()
    state.remember("decision", decision)
    if spent is not None:
        state.remember("spent", spent)
    clock.forget_spans(but=WORK)
    clock.save()
    return True


def _train_tracked(job: _Job, held: Reservation, better: Place | None) -> TrainSummary:
    """The steps that are tracked in one tree of MLflow runs, resumed where an earlier attempt was interrupted."""
    dataset, state, clock = job.dataset, job.state, job.clock
    with ExitStack() as stack:
        with clock.step("track"):
            run_id = stack.enter_context(tracked_run(job.request, dataset, state))
            stack.enter_context(system_metrics(run_id))
            spent = stack.enter_context(spending(state, clock.command, job.cluster))
            notes = stack.enter_context(keeping_evidence(run_id, "train", job.request, dataset, spent))
            log_config(run_id, "profiles", job.profiles)
        decision = _decide(job)
        notes.decision = decision
        request = charged(job.request, decision)
        if job.cluster is None:
            request = with_trials_at_a_time(request, decision, held, run_id)
        keep_chosen(held, decision, request, job.profiles)
        with clock.step("select"):
            log_decision(run_id, decision)
        budget, exploration = spent.budget(request, decision.limits), exploration_limit(clock.command, decision)
        run = RunContext(
            request,
            dataset,
            job.profiles,
            decision,
            state.directory,
            run_id,
            budget,
            StopConditions(clock.command, (budget.exhausted,)).also(exploration),
            job.cluster,
            notes,
            exploration,
            better if decision.exploration is None else None,
        )
        with limited(decision.placement.accelerator, decision.placement.power_limit_watts):
            outcome = recipe_of(request.model).train(run, clock)
        energy = spent.total
        _log_totals(run, energy)
        findings = tuple(finding.words for finding in findings_of_dataset(dataset))
        open_run(run_id).set_tags({"data.findings": "\n".join(findings)} if findings else {})
        repeat = _keep_choices(job, run, outcome)
        open_run(run_id).log_metrics(account_metrics(clock.account()))  # as far as the report can know it
        open_run(run_id).rename(run_name(dataset.name, request.model, outcome.result, datetime.now(UTC)))
        return TrainSummary(
            data_name=dataset.name,
            rows={name: split.rows for name, split in dataset.splits.items()},
            quarantined_rows=dataset.quarantined_rows,
            model=request.model,
            decision=decision,
            tuned=outcome.tuned,
            result=outcome.result,
            step_seconds=clock.account(),
            energy=energy,
            registered=outcome.registered,
            run_id=run_id,
            tracking_uri=str(tracking_address()),
            flow_run_name=flow_run.get_name() or "",
            resumed=state.resumed,
            stopped_because=outcome.tuned.stopped_because if outcome.tuned else None,
            baselines=outcome.baselines,
            tried=outcome.tried,
            reason=outcome.reason,
            noise=outcome.noise,
            towers=outcome.towers,
            promise=outcome.promise,
            minutes=outcome.minutes,
            repeat=repeat,
            quality=outcome.quality,
            findings=findings,
        )


def _decide(job: _Job) -> Decision:
    """The placement that an earlier attempt chose, or the best of those that can be had now."""
    cluster, decision = job.cluster, job.state.recall("decision", Decision)
    if decision is None:
        with job.clock.step("select"):
            measured_by = cluster.measure if cluster else measure
            decision = select(job.dataset, job.request, job.profiles, measure=measured_by)
        job.state.remember("decision", decision)
    if cluster:
        allowed = [row for row in decision.table if not row.excluded_by]
        choices = [Choice(row.candidate.placement, decision.weighed(row)) for row in allowed]
        is_on_processor = decision.placement.device == "cpu"  # else what is predicted is the device's memory
        cluster.prefer(
            choices,
            better_place=installed_move("cluster"),
            may_begin_elsewhere=decision.objective == Objective.TIME.value,
            memory_bytes=decision.prediction.memory_bytes if is_on_processor else 0,
        )
    return decision


def _keep_choices(job: _Job, run: RunContext, outcome: Outcome) -> Repeat | None:
    """Keep what repeats the run, and say whether it has repeated another one; None where it was to repeat none."""
    reasons = [run.notes.stop_reason, outcome.stop_reason]
    choices = keep_choices(
        run.run_id,
        job.state,
        dataset=run.dataset,
        host=job.profiles[0].host,
        decision=run.decision,
        result=outcome.result,
        reasons=reasons,
    )
    if job.repetition is None:
        return None
    repeat = job.repetition.outcome(choices)
    open_run(run.run_id).set_tags({"repeat.of": repeat.run_id, "repeat.is_equal": str(repeat.is_equal)})
    return repeat


def run_name(data: str, model: str, result: EnsembleResult | TrainedRanker, ended: datetime) -> str:
    """What tells a finished run from others in a list: data, what the result holds, quality on the test part, date."""
    is_ranker = isinstance(result, TrainedRanker)
    value = result.test.ndcg20 if is_ranker else result.test.auc
    quality = "" if math.isnan(value) else f" {'NDCG@20' if is_ranker else 'AUC'} {value:.4f}"
    return f"{data} {_held_by(result, model)}{quality} {ended:%Y-%m-%d %H:%M}"


def _held_by(result: EnsembleResult | TrainedRanker, model: str) -> str:
    """Families that the result holds: that of the search, and baselines under their names."""
    if isinstance(result, TrainedRanker):
        return result.spec.family
    used = [member.name for member in result.members if member.is_used]
    return "+".join(dict.fromkeys(name if name in MODEL_FAMILIES else model for name in used))


def _log_totals(run: RunContext, energy: EnergyReading) -> None:
    """Time and energy of the whole run, and where trainings were moved to."""
    log = open_run(run.run_id)
    if run.cluster:
        log.set_tags({"cluster.moves": " ".join(run.cluster.moves) or "none"})
        if run.cluster.nodes_together:
            log.set_tags({"cluster.nodes": ", ".join(run.cluster.nodes_together)})
    log.log_energy(energy)
    log.log_metrics({"time.total_seconds": energy.seconds})
