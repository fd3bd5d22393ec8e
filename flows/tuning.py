"""Flow that only tunes: it tries settings on the chosen placement and ranks them, without a final training."""

from contextlib import ExitStack
from functools import partial
from typing import Annotated

from prefect import flow

from shunter.engine.data.dataset import Dataset
from shunter.engine.overrides import read_overrides
from shunter.engine.stopping import RunClock
from shunter.errors import RequestError
from shunter.flows.command.tables import front_table
from shunter.hardware.devices.power_limit import limited
from shunter.hardware.reservation import Reservation, trainings_together
from shunter.hardware.types import HardwareProfile
from shunter.models.names import check_model
from shunter.planner.decide import Decision
from shunter.python_processes import seconds_before_run
from shunter.requests import Explore, TrainRequest, shown
from shunter.requests.training import check_loggers
from shunter.search.job import SearchJob
from shunter.search.minutes import Minutes
from shunter.search.result import TuneResult
from shunter.tasks.accelerators import keep_chosen, reserve_for_flow
from shunter.tasks.evidence import record_search, recorded_run
from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.ingest import ingest
from shunter.tasks.profile import profile_hardware
from shunter.tasks.recipes import recipe_of
from shunter.tasks.report import report
from shunter.tasks.run_log import REPORT, markdown_table, show_result
from shunter.tasks.run_state import RunState
from shunter.tasks.select import estimate, log_decision, select
from shunter.tasks.spending import charged, spending
from shunter.tasks.tracked_run import tracked_run
from shunter.tasks.tune import observer_of, publish_search, tune, with_trials_at_a_time
from shunter.tracking.reports import log_config
from shunter.tracking.runs import open_run


@flow(name="tune", flow_run_name=named_by("data", "model"), on_failure=[notify], on_crashed=[notify])
def tune_only(request: Annotated[TrainRequest, shown(TrainRequest())] = TrainRequest()) -> TuneResult:
    """Search settings for a model on the data and rank them in MLflow, without training or registering a model.

    If the flow was interrupted, the next run with the same request resumes with the remaining trials and limits.

    Args:
        request: Data, limits, objective and effort; options of the ensemble are not used.

    Raises:
        RequestError: The request names a cluster.
    """
    check_model(request.model)
    request.search.check_is_installed()
    check_loggers(request.log_to)
    read_overrides(request.model, request.architecture.settings)
    if request.nodes.cluster is not None:
        cluster = request.nodes.cluster
        raise RequestError(
            f"`shunter tune` runs on this machine only: leave out the cluster {cluster}, or use `shunter train`."
        )
    clock = RunClock(seconds_before_run())
    dataset = ingest(request)
    recipe_of(request.model).check(request, dataset)
    profiles = profile_hardware(request.model)
    with RunState(request, dataset, profiles[0].host, purpose="tune") as state:
        together = trainings_together(request, profiles, request.training.processes)
        chosen = state.recall("decision", Decision)
        estimated = partial(estimate, dataset, request, profiles)
        with ExitStack() as stack:
            stack.enter_context(clock.kept_in(state.directory))
            with clock.paused():
                priority = request.training.priority
                held = stack.enter_context(
                    reserve_for_flow(
                        profiles, together=together, decision=chosen, estimate=estimated, priority=priority
                    )
                )
            result = state.recovering(_tune_tracked, request, dataset, held.of(profiles), state, held, clock=clock)
        state.finish()
    return result


def _tune_tracked(
    request: TrainRequest,
    dataset: Dataset,
    profiles: list[HardwareProfile],
    state: RunState,
    held: Reservation,
    *,
    clock: RunClock,
) -> TuneResult:
    """Run the steps that are logged to MLflow, in a new tree of runs or that of an interrupted attempt."""
    with (
        tracked_run(request, dataset, state, kind="tune") as run_id,
        spending(state, clock) as spent,
        recorded_run(run_id, "tune", request, dataset, spent) as notes,
    ):
        decision = state.recall("decision", Decision)
        if decision is None:
            # A search measures nothing about the duration of a whole training run, so it never explores.
            decision = select(dataset, request.model_copy(update={"explore": Explore.NEVER}), profiles)
            state.remember("decision", decision)
        request = with_trials_at_a_time(charged(request, decision), decision, held, run_id)
        keep_chosen(held, decision, request, profiles)
        notes.decision = decision
        log_decision(run_id, decision)
        budget = spent.budget(request)
        job = SearchJob(
            dataset=dataset,
            request=request,
            placement=decision.placement,
            directory=state.directory / "tune",
            parent_run_id=run_id,
            used_seconds=budget.seconds,
            used_joules=budget.joules or 0.0,
            minutes=Minutes.of(request.search, clock, budget=budget),
            observe=observer_of(dataset, profiles, request),
        )
        with limited(decision.placement.accelerator, decision.placement.power_limit_watts):
            result = tune(job, should_stop=budget.exhausted)
        record_search(notes, result)
        log_config(run_id, "settings", result)
        publish_search(run_id, result, job.directory)
        open_run(run_id).log_energy(spent.total)
    sentence = f"{dataset.name}, {request.model}: best of {result.complete_trials} trials has {result.best_quality}."
    table = front_table(result)
    rows = [dict(zip(table.columns, map(str, row), strict=True)) for row in table.rows]
    report(run_id, dataset, request)
    show_result("tune", sentence, markdown_table(rows), run_id=run_id, files=REPORT)
    return result.model_copy(update={"run_id": run_id})
