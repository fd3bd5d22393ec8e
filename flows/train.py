"""Main flow, from a click log to a registered model; every step is a Prefect task, and every figure is in MLflow."""

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run

from shunter.engine.data.dataset import Dataset
from shunter.engine.ensemble.result import EnsembleResult
from shunter.engine.executors.role import Choice, Cluster, ComputeTarget, requested_cluster
from shunter.engine.overrides import read_overrides
from shunter.engine.probes.measurement import measure
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.stopping import Budget, StopConditions, StopReason
from shunter.errors import DamagedDataError, ShunterError, find_cause
from shunter.hardware.devices.power_limit import limited
from shunter.hardware.reservation import Reservation, trainings_together
from shunter.hardware.types import EnergyReading, HardwareProfile
from shunter.ingestion.findings import findings_of_dataset
from shunter.models.names import check_model
from shunter.planner.choose import PROBE_SECONDS
from shunter.planner.decide import Decision
from shunter.python_processes import seconds_before_run
from shunter.requests import Explore, Objective, TrainRequest, shown
from shunter.requests.training import check_loggers
from shunter.tasks.accelerators import announce, holds_all, installed_move, keep_chosen, reserve_for_flow
from shunter.tasks.ensemble import UNTRAINED, expected_ending
from shunter.tasks.evidence import recorded_run
from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.ingest import ingest
from shunter.tasks.profile import is_profiled, profile_cluster, profile_hardware
from shunter.tasks.recipes import TrainingOutcome, recipe_of
from shunter.tasks.repetition import Repeat, Repetition, keep_choices
from shunter.tasks.run_context import RunContext
from shunter.tasks.run_log import REPORT, link_run
from shunter.tasks.run_state import RunState, check_copies, forget_copies
from shunter.tasks.select import estimate, log_decision, select
from shunter.tasks.spending import charged, check_time, limits_begun_anew, require_room, spending
from shunter.tasks.step_clock import StepClock
from shunter.tasks.tracked_run import tracked_run
from shunter.tasks.training_plans import check_is_installed, processes_of
from shunter.tasks.tune import with_trials_at_a_time
from shunter.tracking.convention import account_metrics, gain_metrics
from shunter.tracking.links import log_description
from shunter.tracking.registry.model_keys import check_model_key
from shunter.tracking.reports import log_config
from shunter.tracking.runs import open_run, system_metrics
from shunter.tracking.store import tracking_address

MEASURING_SECONDS = 10.0  # shortest time for measuring a machine without a profile
PROBES_SHARE = 0.1  # largest share of a limited command's remaining time for measurements before the choice


class TrainSummary(TrainingOutcome):
    """Outcome of one training run.

    Attributes:
        data_name: Name of the data set.
        rows: Number of rows of each split.
        quarantined_rows: Number of rows that could not be read.
        model: Model family.
        decision: Decision on the placement, with its reason and all candidates.
        step_seconds: Wall-clock seconds of each step, of the start of the process, and of the time outside all steps;
            their sum is the time of this attempt.
        total_seconds: Wall-clock seconds of the command until its report page, interrupted attempts included.
        energy: Energy used during `total_seconds`.
        energy_parts: Energy of each part of the command: `start`, before the choice of the placement; `work`, which
            counts in the limits; and `report`.
        run_id: Parent run in MLflow.
        tracking_uri: Address of the MLflow store, without its secrets.
        flow_run_name: Name of the run in Prefect.
        resumed: Whether an interrupted attempt was continued.
        limit_reached: Limit of the request that ended the search or a training run; None if none did.
        findings: Notable properties of the data, as sentences.
        repeat: Whether the weights equal those of the repeated run; None if no run was repeated.
    """

    data_name: str
    rows: dict[str, int]
    quarantined_rows: int
    model: str
    decision: Decision
    step_seconds: dict[str, float]
    total_seconds: float
    energy: EnergyReading
    energy_parts: dict[str, EnergyReading]
    run_id: str
    tracking_uri: str
    flow_run_name: str
    resumed: bool
    limit_reached: StopReason | None = None
    findings: tuple[str, ...] = ()
    repeat: Repeat | None = None

    @property
    def stopped_because(self) -> str | None:
        """Limit that ended the search early; None if no limit did."""
        return self.tuned.stopped_because if self.tuned else None


@flow(name="train", flow_run_name=named_by("data", "model"), on_failure=[notify], on_crashed=[notify])
def train(
    request: Annotated[TrainRequest, shown(TrainRequest())] = TrainRequest(),
    fresh: bool = False,
    repeat: str = "",
) -> TrainSummary:
    """Train a recommender within the limits and register it.

    Args:
        request: Data, limits, objective and effort.
        fresh: Start anew instead of resuming an interrupted run of the same request.
        repeat: Finished run to repeat bit by bit: its id in MLflow, a prefix of the id, its name, or `latest`. Only the
            name of the registered model and the condition of its promotion are then taken from the request. Empty: no
            repetition.
    """
    repetition = Repetition.of(repeat, request.register_as, request.promote) if repeat else None
    if repetition is not None:
        request = repetition.request
    check_model(request.model)
    request.search.check_is_installed()
    request.ensemble.check_is_installed()
    check_is_installed(request)
    check_loggers(request.log_to)
    read_overrides(request.model, request.architecture.settings)
    check_model_key()
    clock = StepClock(seconds_before_run())
    with clock.step("ingest"):
        dataset = ingest(request)
    try:
        return train_on(request, dataset, clock, fresh=fresh, repetition=repetition)
    except ShunterError as error:
        if find_cause(error, DamagedDataError) is None:
            raise
        announce(str(find_cause(error, DamagedDataError)))
    with clock.step("ingest"):  # the damaged data set was quarantined, so the same data is ingested again
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
    """Train on an ingested data set, or resume an interrupted run, and register the result; see `train`."""
    recipe = recipe_of(request.model)
    recipe.check(request, dataset)
    check_copies(request)
    with requested_cluster(request.nodes) as cluster:
        if request.limits.max_hours or request.limits.max_cost:
            check_time(request, clock.command, 0.0 if is_profiled() else MEASURING_SECONDS)
        with clock.step("profile"):
            profiles = profile_cluster(cluster, processes_of(request)) if cluster else profile_hardware(request.model)
        purpose = repetition.purpose if repetition else "train"
        with RunState(request, dataset, profiles[0].host, fresh=fresh, purpose=purpose) as state:
            if repetition is not None:
                repetition.begin(state, dataset)
            job = _Job(request.named_after(dataset.name), dataset, profiles, state, clock, cluster, repetition)
            summary = state.recovering(_train_held, job)
            with clock.step("report"):  # done before the state is removed, because a kill may interrupt the report
                totals: dict[str, Any] = {}

                def end() -> None:
                    parts = {**summary.energy_parts, "report": clock.energy.take()}
                    totals.update(_log_totals(summary.run_id, clock, parts, summary.result))
                    log_description(summary.run_id, summary.decision.reason)
                    if summary.minutes is not None:
                        totals["minutes"] = f"{summary.minutes} The command took {totals['total_seconds'] / 60:.1f}."
                        open_run(summary.run_id).set_tags({"search.minutes": totals["minutes"]})

                recipe.publish(summary.run_id, dataset, request, end)
            state.finish()
            forget_copies(request, dataset)
            link_run(summary.run_id, REPORT)
    return summary.model_copy(update=totals)


@dataclass(frozen=True)
class _Job:
    """Request of a training run, with its inputs and the state of earlier attempts."""

    request: TrainRequest
    dataset: Dataset
    profiles: list[HardwareProfile]
    state: RunState
    clock: StepClock
    cluster: Cluster | None
    repetition: Repetition | None


def _train_held(job: _Job) -> TrainSummary:
    """Reserve the accelerators, and execute one training run."""
    here = [] if job.cluster else job.profiles  # on a cluster, Ray reserves the accelerators of its nodes
    together = trainings_together(job.request, job.profiles, processes_of(job.request))
    chosen = job.state.recall("decision", Decision)
    estimated = None if job.cluster else cache(partial(estimate, job.dataset, job.request, job.profiles))
    clock = job.clock.command
    with clock.kept_in(job.state.directory), limits_begun_anew(job.state, clock), ExitStack() as stack:
        with job.clock.command.paused():
            priority = job.request.training.priority
            held = stack.enter_context(
                reserve_for_flow(here, together=together, decision=chosen, estimate=estimated, priority=priority)
            )
        better = None
        may_move = job.repetition is None and together == 1
        if estimated is not None and may_move and not holds_all(held, job.profiles):
            move = installed_move("machine")
            better = move(held, estimated) if move else None
        return _train_tracked(job if job.cluster else replace(job, profiles=held.of(job.profiles)), held, better)


def _train_tracked(job: _Job, held: Reservation, better: ComputeTarget | None) -> TrainSummary:
    """Run the steps that are logged to MLflow, in a new tree of runs or that of an interrupted attempt."""
    dataset, state, clock = job.dataset, job.state, job.clock
    with ExitStack() as stack:
        with clock.step("track"):
            run_id = stack.enter_context(tracked_run(job.request, dataset, state))
            stack.enter_context(system_metrics(run_id))
            spent = stack.enter_context(spending(state, clock.command, job.cluster, clock.energy))
            notes = stack.enter_context(recorded_run(run_id, "train", job.request, dataset, spent))
            log_config(run_id, "profiles", job.profiles)
        decision = _decide(job, spent.budget(charged(job.request)))
        notes.decision = decision
        request = charged(job.request, decision)
        if job.cluster is None:
            request = with_trials_at_a_time(request, decision, held, run_id)
        if decision.exploration is None:  # an exploration needs two placements
            keep_chosen(held, decision, request, job.profiles)
        with clock.step("select"):
            log_decision(run_id, decision)
        budget = spent.budget(request, decision.limits)
        run = RunContext(
            request,
            dataset,
            job.profiles,
            decision,
            state.directory,
            run_id,
            budget,
            StopConditions(clock.command, (budget.exhausted,)),
            job.cluster,
            notes,
            better if decision.exploration is None else None,
        )
        with limited(decision.placement.accelerator, decision.placement.power_limit_watts):
            outcome = recipe_of(request.model).train(run, clock)
        _log_cluster(run)
        open_run(run_id).log_power(spent.total)
        findings = tuple(finding.words for finding in findings_of_dataset(dataset))
        open_run(run_id).set_tags({"data.findings": "\n".join(findings)} if findings else {})
        repeat = _keep_choices(job, run, outcome)
        start = {"start": spent.start} if spent.start else {}
        totals = _log_totals(run_id, clock, {**start, "work": spent.total}, outcome.result)  # before the report step
        open_run(run_id).rename(run_name(dataset.name, request.model, outcome.result, datetime.now(UTC)))
        return TrainSummary(
            **dict(outcome),
            data_name=dataset.name,
            rows={name: split.rows for name, split in dataset.splits.items()},
            quarantined_rows=dataset.quarantined_rows,
            model=request.model,
            decision=decision,
            run_id=run_id,
            tracking_uri=str(tracking_address()),
            flow_run_name=flow_run.get_name() or "",
            resumed=state.resumed,
            limit_reached=_log_limit(run, outcome),
            repeat=repeat,
            findings=findings,
            **totals,
        )


def _decide(job: _Job, budget: Budget) -> Decision:
    """Return the placement of an earlier attempt, or choose one; raise StoppedError if a limit leaves no time."""
    cluster, decision, request = job.cluster, job.state.recall("decision", Decision), job.request
    if decision is None:
        if cluster is not None or processes_of(request) > 1:  # only one process of this machine explores placements
            request = request.model_copy(update={"explore": Explore.NEVER})
        with job.clock.step("select"):
            if budget.is_limited:
                budget.ending_seconds, _ = expected_ending(job.dataset, job.request, job.clock, UNTRAINED)
            require_room(budget)
            decision = select(
                job.dataset,
                request,
                job.profiles,
                measure=cluster.measure if cluster else measure,
                probe_seconds=min(PROBE_SECONDS, PROBES_SHARE * budget.left_seconds),
                beside_seconds=budget.seconds + budget.ending_seconds if budget.is_limited else 0.0,
            )
        job.state.remember("decision", decision)
    if cluster:
        allowed = [row for row in decision.table if not row.excluded_by]
        choices = [Choice(row.candidate.placement, decision.weighed(row)) for row in allowed]
        is_on_processor = decision.placement.device == "cpu"  # for other devices, the prediction is device memory
        cluster.prefer(
            choices,
            select_upgrade=installed_move("cluster"),
            may_begin_elsewhere=decision.objective == Objective.TIME.value,
            memory_bytes=decision.prediction.memory_bytes if is_on_processor else 0,
        )
    return decision


def _keep_choices(job: _Job, run: RunContext, outcome: TrainingOutcome) -> Repeat | None:
    """Store the choices of this run for `--repeat`; return the comparison with the run that it repeats, if any."""
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
    """Return the name of a finished run: quality on the test part, families of the result, data, and date.

    Lists and legends truncate the end of a name, so the name begins with the parts that differ most.
    """
    label, value = result.headline
    quality = "" if math.isnan(value) else f"{value:.4f} {label} "
    return f"{quality}{result.families(model)} on {data} {ended:%Y-%m-%d %H:%M}"


def _log_limit(run: RunContext, outcome: TrainingOutcome) -> StopReason | None:
    """Log and return the limit of the request that ended the search or a training run."""
    reached = next((one for one in (outcome.stop_reason, run.notes.stop_reason) if one and one.limits_request), None)
    if reached is not None and reached.limit is not None:
        open_run(run.run_id).set_tags({"limit.reached": reached.limit.value})
    return reached


def _log_totals(
    run_id: str, clock: StepClock, parts: dict[str, EnergyReading], result: EnsembleResult | TrainedRanker
) -> dict[str, Any]:
    """Log time and energy of the command so far, and return them as fields of the summary."""
    account = clock.account()
    seconds = clock.command.earlier_wall_seconds + sum(account.values())
    log = open_run(run_id)
    log.log_figures("time", account_metrics(account))
    energy = log.log_command(seconds, parts)
    log.log_metrics(gain_metrics(result.test_auc, energy))
    return {"step_seconds": account, "total_seconds": seconds, "energy": energy, "energy_parts": parts}


def _log_cluster(run: RunContext) -> None:
    """Log the migrations of training runs between nodes of a cluster, and the nodes that trained together."""
    if run.cluster:
        log = open_run(run.run_id)
        log.set_tags({"cluster.moves": " ".join(run.cluster.moves) or "none"})
        if run.cluster.nodes_together:
            log.set_tags({"cluster.nodes": ", ".join(run.cluster.nodes_together)})
