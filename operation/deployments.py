"""Deployments in Prefect, one for each flow, by which a user can start a flow from a form in Prefect's UI."""

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim
from prefect import Flow, get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import VersionInfo
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType
from pydantic import BaseModel, ConfigDict, Field

from shunter.ingestion.sources.addresses import whole_path
from shunter.operation.forms import arrange, flat_options, shorten
from shunter.operation.servers import WORK_POOL
from shunter.registry import Entry, Registry
from shunter.requests.training import Promote

# Retries of a run's request while Prefect's server is unreachable, 2 to 128 seconds apart: four minutes in all. The
# worker retries for a shorter time, because it must receive cancellations soon after the server is reachable again.
SERVER_RETRIES = 7
PATHS_OF_NIGHTS, FIELDS_OF_FILES = ("data", "schema_file"), {"data", "jobs"}  # names of request fields with paths
RUNS_AT_ONCE = 8  # number of the worker's processes; a run whose accelerator is busy waits and reports the wait


DEPLOYED_FLOWS = Registry(
    "deployed flow",
    {
        name: Entry(target=target, needs="distributed" if name == "fleet-run" else "")
        for name, target in {
            "train": "shunter.flows.train:train",
            "select": "shunter.flows.selection:choose_placement",
            "profile": "shunter.flows.profiling:profile",
            "tune": "shunter.flows.tuning:tune_only",
            "rollback": "shunter.flows.rollback:rollback",
            "predict": "shunter.flows.scoring:predict",
            "export": "shunter.flows.scoring:export",
            "compress": "shunter.extensions.compression.compress_flow:compress",
            "nightly": "shunter.retraining.nightly_flow:nightly",
            "plan": "shunter.extensions.distributed.plan_flow:plan",
            "fleet": "shunter.extensions.fleet.flows:fleet",
            "fleet-run": "shunter.extensions.fleet.flows:fleet_run",
            "fleet-learn": "shunter.extensions.fleet.flows:fleet_learn",
        }.items()
    },
    group="shunter.deployed_flows",
)


class NightlySchedule(BaseModel):
    """Time and data of the nightly retraining."""

    model_config = ConfigDict(frozen=True)

    data: str | None = Field(
        default=None, description="Pattern of the daily log files; if omitted, the schedule is off."
    )
    schema_file: str | None = Field(
        default=None, description="Schema file, which names the columns of the daily log files."
    )
    register_as: str | None = Field(default=None, description="Name of the registered model that is retrained.")
    trials: int | None = Field(
        default=None, description="Number of search trials when there is no champion to start from."
    )
    nightly_epochs: int | None = Field(default=None, description="Maximum number of epochs of a challenger.")
    promote: Promote | None = Field(
        default=None, description="Condition under which a challenger becomes the champion."
    )
    cron: str = Field(default="0 3 * * *", description="Cron expression.")
    timezone: str = Field(default="UTC", description="Time zone of the schedule.")


def register_deployments(directory: Path, nightly: NightlySchedule = NightlySchedule()) -> list[str]:  # noqa: B008
    """Create the work pool and every deployment on Prefect's server, or update them.

    An existing deployment keeps a user's changes in the UI: default parameters, and active or inactive schedules. Only
    the schedule and the parameters of `nightly` are replaced, if `nightly` has data.

    Returns:
        Names of the deployments, `flow/deployment`.
    """
    template, former = _job_template(directory), directory
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(
                WorkPoolCreate(
                    name=WORK_POOL, type="process", base_job_template=template, concurrency_limit=RUNS_AT_ONCE
                )
            )
        except ObjectAlreadyExists:
            known = client.read_work_pool(WORK_POOL).base_job_template["job_configuration"]
            former = Path(known.get("working_dir") or directory)
            client.update_work_pool(WORK_POOL, WorkPoolUpdate(base_job_template=template))
        names = []
        for flow in deployed_flows():
            deployment = _deployment(flow, client, nightly, former)
            schema = deployment._parameter_openapi_schema
            for definition in (schema.definitions or {}).values():
                for name in FIELDS_OF_FILES & definition.get("properties", {}).keys():
                    definition["properties"][name]["description"] += f" Relative paths count from `{directory}`."
            shorten(schema)
            deployment.parameters = arrange(deployment.parameters or {}, schema)
            # Otherwise Prefect would call git 63 times for the version of the project in the current folder.
            deployment.apply(version_info=VersionInfo(type="prefect:simple", version=deployment.version or ""))
            names.append(deployment.full_name)
    return names


def next_nightly_run() -> str | None:
    """Return a sentence with time, model and data of the next nightly run; None if its schedule is off."""
    with get_client(sync_client=True) as client:
        try:
            deployment = client.read_deployment_by_name("nightly/nightly")
        except ObjectNotFound:
            return None
        crons = [one.schedule for one in deployment.schedules if one.active and isinstance(one.schedule, CronSchedule)]
    if deployment.paused or not crons:
        return None
    zone = ZoneInfo(crons[0].timezone or "UTC")
    moment = next(CronSim(crons[0].cron, datetime.now(zone)))
    request = flat_options(deployment.parameters.get("request", {}))
    model = request.get("register_as", "shunter")
    return f"Next nightly run: {moment:%Y-%m-%d %H:%M} {zone.key}, of {model!r} on {request.get('data', 'no data')}"


def _job_template(directory: Path) -> dict[str, Any]:
    """Return the template by which the worker starts runs, with command, environment and folder."""
    return {
        "job_configuration": {
            "name": "{{ name }}",
            "command": shlex.join([sys.executable, "-P", "-m", "shunter.flows.command.deployed_run"]),
            "env": {"PREFECT_CLIENT_MAX_RETRIES": str(SERVER_RETRIES)},
            "labels": {},
            "stream_output": True,
            "working_dir": str(directory),
        },
        "variables": {
            "type": "object",
            "properties": {"name": {"type": "string", "title": "Name", "description": "Name of the run's process."}},
            "additionalProperties": False,
        },
    }


def deployed_flows() -> list[Flow[..., Any]]:
    """Import and return the installed flows that a user may start from the UI."""
    return [DEPLOYED_FLOWS.load(name) for name in DEPLOYED_FLOWS.names]


def _deployment(
    flow: Flow[..., Any], client: SyncPrefectClient, nightly: NightlySchedule, former: Path
) -> RunnerDeployment:
    """Return the deployment of a flow, with the changes that a user has made in the UI."""
    try:
        present = client.read_deployment_by_name(f"{flow.name}/{flow.name}")
    except ObjectNotFound:
        present = None
    options: dict[str, Any] = {"parameters": present.parameters, "paused": present.paused} if present else {}
    if flow.name == "nightly" and present is not None:  # earlier versions ran in another folder
        request = flat_options(present.parameters.get("request", {}))
        if whole := {name: whole_path(request[name], former) for name in PATHS_OF_NIGHTS if request.get(name)}:
            options["parameters"] = {**present.parameters, "request": {**request, **whole}}
    if flow.name == "nightly" and (present is None or nightly.data is not None):
        options["schedules"] = [
            Cron(nightly.cron, timezone=nightly.timezone, slug="nightly", active=nightly.data is not None)
        ]
        if nightly.data is not None:
            asked = nightly.model_dump(exclude={"cron"}, exclude_none=True, mode="json")
            options["parameters"] = {"request": asked}
    return flow.to_deployment(  # pyright: ignore[reportReturnType] - typed as a coroutine too, for async code
        flow.name,
        work_pool_name=WORK_POOL,
        job_variables={},  # empty, in case an earlier version has stored variables
        entrypoint_type=EntrypointType.MODULE_PATH,
        tags=["shunter"],
        **options,
    )
