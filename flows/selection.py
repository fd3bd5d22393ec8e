"""The flow that only chooses: where a training should run, here or on what one could rent, before any training."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import flow, get_run_logger
from prefect.runtime import flow_run

from engine.executors.ray.cluster import requested_cluster
from engine.probes.measurement import measure
from flows.hooks import notify
from hardware.reservation import Reservation, wanted
from hardware.types import HardwareProfile
from models.names import check_model
from planner.decide import Decision, NoFeasiblePlacementError
from shunter.errors import ShunterError
from shunter.requests.training import SelectRequest
from tasks.ingest import ingest
from tasks.profile import profile_cluster, profile_hardware
from tasks.select import log_decision, select
from tracking.reports import log_config
from tracking.runs import closing, start_run_tree


@flow(name="select", flow_run_name="select-{request.data}", on_failure=[notify], on_crashed=[notify])
def choose_placement(request: SelectRequest = SelectRequest()) -> Decision:
    """Choose a placement within the limits, from this machine and the catalogue, and keep why in MLflow.

    Args:
        request: the data, the limits, the objective, the effort, and the accelerators to compare.
    """
    check_model(request.model)
    dataset = ingest(request)
    with requested_cluster(request.nodes) as cluster:
        profiles = profile_cluster(cluster) if cluster else profile_hardware()
        run_id = start_run_tree(request, dataset, flow_run_id=flow_run.get_id(), kind="select")
        with closing(run_id), _free([] if cluster else profiles) as is_free:
            log_config(run_id, "request", request.flat())
            log_config(run_id, "profiles", profiles)
            decision = select(
                dataset,
                request,
                profiles,
                offers=request.offers,
                probe_seconds=request.probe_seconds if is_free else 0.0,
                measure=cluster.measure if cluster else measure,
            )
            log_decision(run_id, decision)
    return decision


@contextmanager
def _free(profiles: list[HardwareProfile]) -> Iterator[bool]:
    """Hold accelerators to measure on; False where a training uses them: a question is answered without waiting."""
    reservation = Reservation()
    used = reservation.take_if_free(wanted(profiles), flow_run.get_name() or "select")
    if used:
        get_run_logger().warning("%s: steps are predicted, none is measured.", used)
    try:
        yield not used
    finally:
        reservation.release()


def decision_as_json(decision: Decision) -> dict[str, Any]:
    """Everything about a decision as plain values, for a script that reads `shunter select --json`."""
    return {
        "status": "chosen",
        "placement": decision.placement.model_dump(mode="json"),
        "is_here": decision.chosen.candidate.is_here,
        "objective": decision.objective,
        "limits": decision.limits.model_dump(mode="json"),
        "epochs": decision.job.epochs,
        "reason": decision.reason,
        "explanation": decision.explanation,
        "binds": decision.binds,
        "notes": list(decision.notes),
        "table": decision.table_rows(),
    }


def error_as_json(error: ShunterError) -> dict[str, Any]:
    """Why there is no decision; for limits that nothing keeps, also what is nearest and what to relax."""
    if not isinstance(error, NoFeasiblePlacementError):
        return {"status": "error", "message": str(error)}
    return {
        "status": "infeasible",
        "message": str(error),
        "fastest": error.fastest.candidate.placement.model_dump(mode="json"),
        "fastest_hours": error.fastest.hours,
        "shortfall_seconds": error.shortfall_seconds,
        "relaxations": [relaxation.model_dump(mode="json") for relaxation in error.relaxations],
    }
