"""The main flow: from click log to registered model, every step a Prefect task, every figure in MLflow."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run
from rich.console import Console

from engine.config import Schedule
from engine.data.dataset import Dataset
from engine.ensemble.result import EnsembleResult
from engine.execution import execution_of
from engine.executors.adaptation import Adaptation
from engine.executors.energy import add_readings
from engine.executors.ray.cluster import Cluster, requested_cluster
from engine.job import TrainingJob
from engine.probes.measurement import measure
from engine.trained_model import TrainedModel
from flows.graph import check_graph_request, is_graph_model, register_ranker, train_graph_model
from flows.hooks import notify
from flows.summary import TrainSummary
from hardware.budget import JOULES_PER_KWH, Budget, Meter
from hardware.devices.discovery import usable_cores
from hardware.devices.power_limit import limited
from hardware.meters.meter import measure_energy
from hardware.reservation import Reservation, reserve, trainings_together, wanted
from hardware.types import EnergyReading, HardwareProfile, Placement
from models.names import check_model
from planner.decide import Decision
from planner.predict.observe import expected_step, step_observation
from planner.rank.totals import affordable_seconds
from planner.redecide import alternatives, redecide
from search.result import Setting, TuneResult
from shunter.errors import InfeasibleError
from shunter.requests.training import JobRequest, TrainRequest
from tasks.card import describe_version, write_card
from tasks.ensemble import build_ensemble
from tasks.ingest import ingest
from tasks.profile import profile_cluster, profile_hardware
from tasks.register import register
from tasks.report import report
from tasks.run_state import RunIdentity, RunState, Spent, StateFolder
from tasks.select import log_decision, select
from tasks.train import train_member
from tasks.tune import publish_search, tune
from tracking.convention import quality_metrics
from tracking.learning import log_steps
from tracking.registry.models import RegisteredModel
from tracking.reports import log_config, log_training_curve
from tracking.runs import closing, open_run, start_run_tree, system_metrics
from tracking.store import tracking_uri

PATIENCE = 2  # epochs without a better validation NE


@flow(name="train", flow_run_name="train-{request.data}", on_failure=[notify], on_crashed=[notify])
def train(request: TrainRequest = TrainRequest(), fresh: bool = False) -> TrainSummary:
    """Train a recommender within the limits and register it.

    Args:
        request: the data, the limits, the objective and the effort.
        fresh: start anew instead of resuming an interrupted run of the same request.
    """
    check_model(request.model)
    clock = StepClock()
    with clock.step("ingest"):
        dataset = ingest(request)
    return train_on(request, dataset, clock, fresh=fresh)


def train_on(request: TrainRequest, dataset: Dataset, clock: "StepClock", *, fresh: bool = False) -> TrainSummary:
    """Train on what was ingested, register the result, and go on with an interrupted run; see `train`."""
    if is_graph_model(request):
        check_graph_request(request, dataset)
    with requested_cluster(request.nodes) as cluster:
        with clock.step("profile"):
            profiles = profile_cluster(cluster) if cluster else profile_hardware()
        with RunState(request, dataset, profiles[0].host, fresh=fresh) as state:
            chosen = state.recall("decision", Decision)
            together = trainings_together(request, profiles)
            groups = wanted(profiles, processes=together, chosen=chosen.placement if chosen else None)
            # Ray keeps trainings off each other's nodes.
            with reserve(*([] if cluster else groups), holder=flow_run.get_name() or "train") as held:
                here = profiles if cluster else held.of(profiles)
                summary = _train_on(request, dataset, here, state, clock, cluster=cluster, held=held)
            state.finish()
        if not is_graph_model(request):
            report(summary.run_id, dataset, request)
    return summary


def _train_on(
    request: TrainRequest,
    dataset: Dataset,
    profiles: list[HardwareProfile],
    state: RunState,
    clock: "StepClock",
    *,
    cluster: Cluster | None,
    held: Reservation,
) -> TrainSummary:
    """The steps that are tracked in one tree of MLflow runs, resumed where an earlier attempt was interrupted."""
    run_id = _open_tracking(request, dataset, profiles, state)
    with (
        closing(run_id),
        system_metrics(run_id),
        _meter(profiles, cluster) as meter,
        spending(state, meter),
        ExitStack() as limits,
    ):
        decision = _decide(request, dataset, profiles, state, clock, cluster=cluster)
        held.keep(decision.placement, trainings_together(request, profiles))
        if cluster:
            cluster.prefer([row.candidate.placement for row in decision.table if not row.excluded_by])
        log_decision(run_id, decision)
        limits.enter_context(limited(decision.placement.accelerator, decision.placement.power_limit_watts))
        budget = budget_of(request, meter, state)
        should_stop = budget.exhausted
        if is_graph_model(request):
            tuned = None
            with clock.step("train"):
                result = train_graph_model(
                    request,
                    dataset,
                    decision.placement,
                    state.directory / "ranker",
                    run_id=run_id,
                    should_stop=should_stop,
                )
            with clock.step("register"):
                registered = register_ranker(request, dataset, result, run_id)
        else:
            tuned, result, registered = _train_ensemble(
                request,
                dataset,
                decision,
                profiles=profiles,
                directory=state.directory,
                run_id=run_id,
                budget=budget,
                cluster=cluster,
                clock=clock,
            )
        energy = total_reading(state, meter)
        _log_totals(run_id, energy, clock, cluster)
    return TrainSummary(
        data_name=dataset.name,
        rows={name: split.rows for name, split in dataset.splits.items()},
        quarantined_rows=dataset.quarantined_rows,
        model=request.model,
        decision=decision,
        tuned=tuned,
        result=result,
        step_seconds=clock.seconds,
        energy=energy,
        registered=registered,
        run_id=run_id,
        tracking_uri=tracking_uri(),
        flow_run_name=flow_run.get_name() or "",
        resumed=state.resumed,
        stopped_because=tuned.stopped_because if tuned else None,
    )


def _decide(
    request: TrainRequest,
    dataset: Dataset,
    profiles: list[HardwareProfile],
    state: RunState,
    clock: "StepClock",
    *,
    cluster: Cluster | None,
) -> Decision:
    """The placement: the one that an earlier attempt chose, or the best of those that can be had now."""
    decision = state.recall("decision", Decision)
    if decision is None:
        with clock.step("select"):
            decision = select(dataset, request, profiles, measure=cluster.measure if cluster else measure)
        state.remember("decision", decision)
    return decision


def _log_totals(run_id: str, energy: EnergyReading, clock: "StepClock", cluster: Cluster | None) -> None:
    """Time and energy of the whole run, and where trainings were moved to."""
    run = open_run(run_id)
    if cluster:
        run.set_tags({"cluster.moves": " ".join(cluster.moves) or "none"})
    run.log_energy(energy)
    run.log_metrics({"time.total_seconds": energy.seconds})
    run.log_metrics({f"time.{name}_step_seconds": seconds for name, seconds in clock.seconds.items()})


def _train_ensemble(
    request: TrainRequest,
    dataset: Dataset,
    decision: Decision,
    *,
    profiles: list[HardwareProfile],
    directory: Path,
    run_id: str,
    budget: Budget,
    cluster: Cluster | None,
    clock: "StepClock",
) -> tuple[TuneResult, EnsembleResult, RegisteredModel]:
    """Tune, train the members, combine them and register the result."""
    with clock.step("tune"):
        tuned = tune(
            dataset,
            request,
            decision.placement,
            directory / "tune",
            parent_run_id=run_id,
            should_stop=budget.exhausted,
            place=cluster,
            used_seconds=budget.seconds,
            used_joules=budget.joules or 0.0,
        )
        publish_search(run_id, tuned, directory / "tune")
    with clock.step("train"):
        members = _train_members(
            request,
            dataset,
            decision,
            tuned,
            profiles=profiles,
            directory=directory,
            run_id=run_id,
            should_stop=budget.exhausted,
            cluster=cluster,
        )
    with clock.step("ensemble"):
        result = build_ensemble(
            dataset,
            members,
            _scoring_placement(decision.placement),
            directory / "ensemble",
            parent_run_id=run_id,
            seed=request.seed,
        )
    log_training_curve(run_id, {member.name: member.history for member in members})
    with clock.step("card"):
        card = write_card(run_id, dataset, members, result, _scoring_placement(decision.placement), seed=request.seed)
    with clock.step("register"):
        registered = _register_if_good_enough(request, dataset, result, run_id)
    describe_version(card, registered)
    return tuned, result, registered


def _open_tracking(request: TrainRequest, dataset: Dataset, profiles: list[HardwareProfile], state: RunState) -> str:
    earlier = state.recall("identity", RunIdentity)
    run_id = start_run_tree(
        request, dataset, flow_run_id=flow_run.get_id(), parent_run_id=earlier.parent_run_id if earlier else None
    )
    state.remember("identity", RunIdentity(parent_run_id=run_id))
    log_config(run_id, "request", request.flat())
    log_config(run_id, "profiles", profiles)
    return run_id


def _train_members(
    request: TrainRequest,
    dataset: Dataset,
    decision: Decision,
    tuned: TuneResult,
    *,
    profiles: list[HardwareProfile],
    directory: Path,
    run_id: str,
    should_stop: Callable[[], str | None],
    cluster: Cluster | None,
) -> list[TrainedModel]:
    """Train the best settings to the end, each from a seed of its own; when settings are few, they take turns."""
    members = []
    placement = decision.placement.model_copy(update={"processes": request.training.processes})
    profile = next(one for one in profiles if one.accelerator.name == placement.accelerator)
    for position in range(request.ensemble.ensemble_size):
        setting = tuned.winners[position % len(tuned.winners)]
        if members and should_stop():
            break  # the first member is trained whatever is left: without it there is no model
        fixed_threads = request.training.fixed_threads or cluster is not None
        adaptation = None if fixed_threads else _adaptation(dataset, setting, placement, profile, decision)
        member = train_member(
            TrainingJob(
                dataset,
                setting.spec,
                setting.hyperparameters,
                execution_of(placement),
                Schedule(max_epochs=request.training.max_epochs, patience=PATIENCE, seed=request.seed + position),
            ),
            placement,
            directory / "members" / str(position),
            name=f"member-{position}",
            parent_run_id=run_id,
            should_stop=should_stop,
            adaptation=adaptation,
            place=cluster,
        )
        if adaptation is None or adaptation.placement == placement:
            _keep_step_time(dataset, member, profile)
        members.append(member)
    return members


def _adaptation(
    dataset: Dataset, setting: Setting, placement: Placement, profile: HardwareProfile, decision: Decision
) -> Adaptation | None:
    """What lets the threads follow the measured steps; None where nothing says how long these shall take."""
    expected = expected_step(dataset, setting.spec, placement, profile, decision.observations).step_seconds_interval
    choices = alternatives(decision, placement)
    if expected is None or len(choices) < 2:
        return None
    return Adaptation(placement, expected, choices, decide=partial(redecide, decision))


def _keep_step_time(dataset: Dataset, member: TrainedModel, profile: HardwareProfile) -> None:
    """Let later choices learn from what a step took; a compiled one tells nothing about the others."""
    steps = member.samples_seen / member.placement.batch_size
    if member.run_id is None or member.compile_seconds or not steps:
        return
    seconds = (member.compute_seconds + member.wait_seconds) / steps
    log_steps(member.run_id, [step_observation(dataset, member.spec, member.placement, profile, seconds)])


def _register_if_good_enough(
    request: TrainRequest, dataset: Dataset, result: EnsembleResult, run_id: str
) -> RegisteredModel:
    """Register the model, unless it misses the user's quality limit.

    Raises:
        InfeasibleError: the AUC on validation is below `min_auc`.
    """
    least = request.limits.min_auc
    if least is not None and not result.validation.auc >= least:
        raise InfeasibleError(
            f"The model reached AUC {result.validation.auc:.4f} on validation, below --min-auc {least:g}, so it was "
            f"not registered: allow more --trials or --max-epochs, or lower the limit."
        )
    metrics = {**quality_metrics(result.validation), **quality_metrics(result.test, "test")}
    return register(
        run_id, dataset, result.directory, request.register_as, metrics={k: float(v) for k, v in metrics.items()}
    )


@contextmanager
def _meter(profiles: list[HardwareProfile], cluster: Cluster | None) -> Iterator[Meter]:
    """Meter of this machine, or of this process and of what the nodes report."""
    if cluster is None:
        with measure_energy(*(profile.accelerator.name for profile in profiles)) as meter:
            yield meter
        return
    with measure_energy(scope="process") as meter:
        yield cluster.meter_with(meter)


def _scoring_placement(placement: Placement) -> Placement:
    """Where the finished models are scored: the placement they were trained at, or this machine's processor."""
    if placement.node is None:
        return placement
    return placement.model_copy(update={"accelerator": "cpu", "threads": usable_cores(), "precision": "fp32"})


def budget_of(request: JobRequest, meter: Meter, state: StateFolder) -> Budget:
    """The limits of a request, less what earlier attempts have used of them."""
    limits = request.limits
    spent = state.recall("spent", Spent)
    return Budget(
        meter=meter,
        max_seconds=None if limits.max_hours is None else limits.max_hours * 3600,
        max_joules=None if limits.max_kwh is None else limits.max_kwh * JOULES_PER_KWH,
        max_cost=_affordable_cost(request),
        price_per_hour=request.pricing.price_per_hour,
        used_seconds=spent.energy.seconds if spent else 0.0,
        used_joules=(spent.energy.joules or 0.0) if spent else 0.0,
    )


def _affordable_cost(request: JobRequest) -> float | None:
    """What may be spent by the exact time, so that with each started unit charged in full the limit is kept."""
    limit, price = request.limits.max_cost, request.pricing.price_per_hour
    if limit is None or price is None:
        return limit
    return affordable_seconds(limit, price, request.pricing.billing) * price / 3600


@contextmanager
def spending(state: StateFolder, meter: Meter) -> Iterator[None]:
    """Keep what this attempt used for the next one, if it does not come to the end."""
    try:
        yield
    except BaseException:
        state.remember("spent", Spent(energy=total_reading(state, meter)))
        raise


def total_reading(state: StateFolder, meter: Meter) -> EnergyReading:
    """Time and energy of this attempt and the interrupted ones before it."""
    spent = state.recall("spent", Spent)
    return meter.reading if spent is None else add_readings(spent.energy, meter.reading)


class StepClock:
    """Wall-clock seconds of each step of this attempt; says on stderr when one is done."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._console = Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block under `name`."""
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
        self._console.print(f"{name:<10}{self.seconds[name]:7.1f} s", style="dim")
