"""Flow that only chooses where a training run should run, on this machine or a rented one, without training."""

from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run

from shunter.engine.executors.role import requested_cluster
from shunter.engine.probes.measurement import measure
from shunter.models.names import check_model
from shunter.planner.decide import Decision
from shunter.requests import SelectRequest, shown
from shunter.tasks.accelerators import reserve_if_free
from shunter.tasks.evidence import recorded_run
from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.ingest import ingest
from shunter.tasks.profile import profile_cluster, profile_hardware
from shunter.tasks.report import report
from shunter.tasks.run_log import REPORT, markdown_table, show_result
from shunter.tasks.select import log_decision, select
from shunter.tracking.reports import log_config, log_request
from shunter.tracking.runs import closing, start_run_tree

FIRST_ROWS = 20  # number of candidates in the result; the table of the step has more


@flow(name="select", flow_run_name=named_by("data", "model"), on_failure=[notify], on_crashed=[notify])
def choose_placement(request: Annotated[SelectRequest, shown(SelectRequest())] = SelectRequest()) -> Decision:
    """Choose a placement within the limits, from this machine and the catalogue, and log the reason to MLflow.

    Args:
        request: Data, limits, objective, effort, and accelerators to compare.
    """
    check_model(request.model)
    dataset = ingest(request)
    with requested_cluster(request.nodes) as cluster:
        profiles = profile_cluster(cluster) if cluster else profile_hardware(request.model)
        run_id = start_run_tree(request, dataset, flow_run_id=flow_run.get_id(), kind="select")
        with (
            closing(run_id),
            recorded_run(run_id, "select", request, dataset) as notes,
            reserve_if_free([] if cluster else profiles) as is_free,
        ):
            log_request(run_id, request, "select")
            log_config(run_id, "profiles", profiles)
            decision = select(
                dataset,
                request,
                profiles,
                offers=request.offers,
                probe_seconds=request.probe_seconds if is_free else 0.0,
                measure=cluster.measure if cluster else measure,
            )
            notes.decision = decision
            log_decision(run_id, decision)
    report(run_id, dataset, request)
    table = markdown_table(decision.shown_rows()[:FIRST_ROWS])
    show_result("select", decision.reason, table, run_id=run_id, files=REPORT)
    return decision.model_copy(update={"run_id": run_id})
