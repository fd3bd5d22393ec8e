"""The flow that only tunes: settings tried on the chosen placement and ranked, none of them trained to the end."""

from contextlib import ExitStack

from prefect import flow
from prefect.runtime import flow_run

from flows.hooks import notify
from hardware.budget import JOULES_PER_KWH, Budget
from hardware.devices.power_limit import limited
from hardware.meters.meter import EnergyMeter, measure_energy
from hardware.reservation import reserve, trainings_together, wanted
from models.names import check_model
from planner.decide import Decision
from search.result import TuneResult
from shunter.errors import RequestError
from shunter.requests.training import TrainRequest
from tasks.ingest import ingest
from tasks.profile import profile_hardware
from tasks.run_state import RunState
from tasks.select import log_decision, select
from tasks.tune import publish_search, tune
from tracking.reports import log_config
from tracking.runs import closing, open_run, start_run_tree


@flow(name="tune", flow_run_name="tune-{request.data}", on_failure=[notify], on_crashed=[notify])
def tune_only(request: TrainRequest = TrainRequest()) -> TuneResult:
    """Search settings for a model on the data and rank them in MLflow, without training or registering any.

    Interrupted and given again, it goes on with the trials that are left.

    Args:
        request: the data, the limits, the objective and the effort; what concerns the ensemble is not used.

    Raises:
        RequestError: a cluster is asked for.
    """
    check_model(request.model)
    if request.nodes.cluster is not None:
        raise RequestError(
            f"Tuning alone works on this machine: leave out the cluster {request.nodes.cluster}, or train."
        )
    dataset = ingest(request)
    profiles = profile_hardware()
    with RunState(request, dataset, profiles[0].host, purpose="tune") as state, ExitStack() as stack:
        decision = state.recall("decision", Decision)
        together = trainings_together(request, profiles)
        groups = wanted(profiles, processes=together, chosen=decision.placement if decision else None)
        held = stack.enter_context(reserve(*groups, holder=flow_run.get_name() or "tune"))
        run_id = start_run_tree(request, dataset, flow_run_id=flow_run.get_id(), kind="tune")
        with closing(run_id), measure_energy(*held.names) as meter:
            if decision is None:
                decision = select(dataset, request, held.of(profiles))
                state.remember("decision", decision)
            held.keep(decision.placement, together)
            log_config(run_id, "request", request.flat())
            log_decision(run_id, decision)
            with limited(decision.placement.accelerator, decision.placement.power_limit_watts):
                result = tune(
                    dataset,
                    request,
                    decision.placement,
                    state.directory / "tune",
                    parent_run_id=run_id,
                    should_stop=_budget(request, meter).exhausted,
                    used_seconds=meter.seconds_so_far(),
                    used_joules=meter.joules_so_far() or 0.0,
                )
            log_config(run_id, "settings", result)
            publish_search(run_id, result, state.directory / "tune")
            open_run(run_id).log_energy(meter.reading)
        state.finish()
    return result


def _budget(request: TrainRequest, meter: EnergyMeter) -> Budget:
    limits = request.limits
    return Budget(
        meter=meter,
        max_seconds=None if limits.max_hours is None else limits.max_hours * 3600,
        max_joules=None if limits.max_kwh is None else limits.max_kwh * JOULES_PER_KWH,
        max_cost=limits.max_cost,
        price_per_hour=request.pricing.price_per_hour,
    )
