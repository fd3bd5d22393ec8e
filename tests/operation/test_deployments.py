"""What the Prefect UI shows as a form is the request itself: descriptions, defaults, choices and limits."""

import json
import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from prefect import get_client
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema

from shunter.extensions.compression.compression_requests import CompressRequest
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.fleet.requests import FleetLearnRequest, FleetRequest, FleetRunRequest
from shunter.flows.command.options import JOB_REQUESTS
from shunter.model_families import AUTO, MODEL_FAMILIES, RANKING_MODELS
from shunter.operation.deployments import NightlySchedule, deployed_flows, register_deployments
from shunter.operation.forms import flat_options, shorten
from shunter.operation.servers import WORK_POOL
from shunter.requests import FORMATS, Billing, Limits, Objective, ProfileRequest, Request, SelectRequest, TrainRequest
from shunter.requests.groups import option_name
from shunter.requests.training import Promote
from shunter.retraining.nightly_request import NightlyRequest
from shunter.settings import PROJECT_ROOT

FLOWS = {flow.name: flow for flow in deployed_flows()}
REQUESTS: dict[str, type[Request]] = {
    "train": TrainRequest,
    "select": SelectRequest,
    "profile": ProfileRequest,
    "tune": TrainRequest,
    "nightly": NightlyRequest,
    "plan": PlanRequest,
    "fleet": FleetRequest,
    "fleet-run": FleetRunRequest,
    "fleet-learn": FleetLearnRequest,
    "compress": CompressRequest,
}
EXPECTED = (
    *("train", "select", "profile", "tune", "plan", "fleet", "fleet-run"),
    *("rollback", "predict", "export", "compress"),
)


@cache
def form(name: str) -> dict[str, Any]:
    """The JSON schema that the UI makes a form of; copied by who changes it."""
    return parameter_schema(FLOWS[name].fn).model_dump()


@pytest.mark.parametrize(
    ("former", "flow", "module"),
    [("nightly", "nightly", "retraining.nightly_flow"), ("planning", "plan", "extensions.distributed.plan_flow")],
)
def test_a_flow_that_an_earlier_version_has_deployed_is_found(former: str, flow: str, module: str) -> None:
    for entrypoint in (f"shunter.flows.{former}.{flow}", f"{PROJECT_ROOT}/flows/{former}.py:{flow}"):
        found = load_flow_from_entrypoint(entrypoint)
        assert (found.name, found.fn.__module__) == (flow, f"shunter.{module}")


def test_every_flow_of_a_user_is_deployed() -> None:
    assert set(EXPECTED) <= set(FLOWS)


@pytest.mark.parametrize("name", sorted(FLOWS))
def test_every_field_of_every_form_is_described_and_none_must_be_filled_in(name: str) -> None:
    schema = form(name)
    assert schema.get("required", []) == []
    for parameter, field in schema["properties"].items():
        assert field.get("description"), f"{parameter} of {name}"
        assert "default" in field, f"{parameter} of {name}"
    for model, definition in schema["definitions"].items():
        assert definition.get("required", []) == []
        for parameter, field in definition.get("properties", {}).items():
            assert field.get("description"), f"{parameter} of {model} of {name}"


@pytest.mark.parametrize("name", sorted(FLOWS))
def test_no_form_shows_null(name: str) -> None:
    found = parameter_schema(FLOWS[name].fn)
    shorten(found)
    schema = {"definitions": found.definitions or {}, "properties": found.properties}
    for field in schema["properties"].values():
        field.pop("definitions", None)  # of the check, where an empty field may be null
    for definition in schema["definitions"].values():
        shown = json.dumps([definition.get("properties", {}), definition.get("description", "")])
        assert "null" not in shown
    assert "null" not in json.dumps(schema["properties"])


@pytest.mark.parametrize("name", sorted(REQUESTS.keys() & FLOWS.keys()))
def test_groups_come_in_the_order_of_their_use_and_bear_their_titles(name: str) -> None:
    request = form(name)["properties"]["request"]["$ref"].rpartition("/")[2]
    fields = form(name)["definitions"][request]["properties"].values()
    titles = [field["title"] for field in sorted(fields, key=lambda field: field["position"])]
    essential = [title for title in ("Data", "Model", "Limits", "Search", "Ensemble") if title in titles]
    assert [title for title in titles if title in essential] == essential
    is_advanced = [title.startswith("Advanced: ") or title == "--seed" for title in titles]
    assert is_advanced == sorted(is_advanced), titles


def test_titles_are_the_options_of_the_command_and_choices_are_drop_downs() -> None:
    definitions = form("train")["definitions"]
    limits, model = definitions["Limits"]["properties"], definitions["ModelRequest"]["properties"]["model"]
    assert {field["title"] for field in limits.values()} == {option_name(name) for name in limits}
    assert set(model["enum"]) == {AUTO, *MODEL_FAMILIES.names, *RANKING_MODELS.names}
    assert {"none", "lr,fm", "lr", "fm"} <= set(definitions["TrainingEffort"]["properties"]["baselines"]["enum"])
    choices, _ = definitions["TrainRequest"]["properties"]["objective"]["anyOf"]
    assert set(Objective) < set(choices["enum"])


def test_form_of_train_offers_choices_and_nested_limits_with_their_bounds() -> None:
    definitions = form("train")["definitions"]
    assert definitions["Billing"]["enum"] == list(Billing)
    request = definitions["TrainRequest"]["properties"]
    source, search = (definitions[name]["properties"] for name in ("PartsRequest", "SearchRequest"))
    assert request["limits"]["$ref"] == "#/definitions/Limits"
    assert request["search"]["$ref"] == "#/definitions/SearchRequest"
    assert source["format"]["enum"] == list(FORMATS.names)
    assert search["trials"].items() >= {"minimum": 1, "type": "integer"}.items()
    assert all(quantity in request["objective"]["description"] for quantity in Objective)
    limits = definitions["Limits"]["properties"]
    assert set(limits) == set(Limits.model_fields)
    assert limits["max_hours"].items() >= {"exclusiveMinimum": 0, "type": "number"}.items()
    assert "default" not in limits["max_hours"], "an empty line"


def test_what_the_form_shows_at_first_is_the_request_of_the_command_without_options() -> None:
    default = form("train")["properties"]["request"]["default"]
    assert TrainRequest.model_validate(default) == TrainRequest()


def test_flat_options_are_accepted_with_the_same_bounds_though_the_form_shows_groups() -> None:
    definitions = form("train")["definitions"]
    accepted = definitions["TrainRequest"]["patternProperties"]
    for group in ("PartsRequest", "SearchRequest", "TrainingEffort", "EnsembleRequest", "ClusterRequest", "Pricing"):
        for name, field in definitions[group]["properties"].items():
            may_be_empty = "default" not in field
            assert accepted[f"^{name}$"] == ({"anyOf": [field, {"type": "null"}]} if may_be_empty else field)


@pytest.mark.parametrize("name", sorted(REQUESTS.keys() & FLOWS.keys()))
def test_what_is_stored_of_a_request_is_accepted_again(name: str) -> None:
    from prefect.utilities.schema_tools.validation import validate

    schema = deepcopy(form(name))  # Prefect's validation changes it
    request = REQUESTS[name]()
    assert name == "profile" or validate({"request": request.flat()}, schema) == []  # which is stored nowhere
    assert validate({"request": request.model_dump(mode="json", exclude_none=True)}, schema) == []
    if name not in ("profile", "plan", "fleet", "fleet-run", "fleet-learn", "compress"):  # which have no limits
        assert validate({"request": {"limits": {"max_hours": None}}}, schema) == []
        assert validate({"request": {"limits": {"max_hours": -1}}}, schema) != []


def test_a_plan_of_a_deployment_is_written_into_the_home_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from shunter.extensions.distributed import plan_flow

    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path))
    assert plan_flow._plan_path("../there/plan.yaml", "run") == Path("../there/plan.yaml")
    monkeypatch.setattr(plan_flow, "is_foreign_request", lambda: True)
    for asked in ("../../etc/plan.yaml", "/etc/plan.yaml", "plan.yaml", "..", ""):
        place = plan_flow._plan_path(asked, "run").resolve()
        assert place.is_relative_to(tmp_path / "plans"), asked


@pytest.mark.slow
class TestRegistered:
    """On a real server."""

    @pytest.fixture(autouse=True)
    def server(self, prefect_server: None) -> None:
        """The deployments go to the tests' own server."""

    @pytest.fixture(scope="class")
    def registered(self, prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
        """Folder and names of what is registered once for the tests that change nothing of it."""
        folder = tmp_path_factory.mktemp("registered")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHUNTER_HOME", str(folder / "home"))
            return folder, list(register_deployments(folder))

    def test_names_pool_and_folder_are_those_that_were_asked_for(self, registered: tuple[Path, list[str]]) -> None:
        folder, names = registered
        assert {f"{name}/{name}" for name in EXPECTED} <= set(names)
        with get_client(sync_client=True) as client:
            train = client.read_deployment_by_name("train/train")
            pool = client.read_work_pool(WORK_POOL)
            assert train.work_pool_name == WORK_POOL
            assert train.enforce_parameter_schema
            assert train.parameter_openapi_schema is not None
            fields = train.parameter_openapi_schema["definitions"]["PartsRequest"]["properties"]
            assert f"`{folder}`" in fields["data"]["description"]
            assert pool.type == "process"
            assert pool.base_job_template["job_configuration"]["working_dir"] == str(folder)

    @pytest.mark.parametrize(
        "chosen",
        [
            {"command": "sh -c 'id > /tmp/found'"},
            {"env": {"SHUNTER_DATA_ROOTS": "/"}},
            {"env.SHUNTER_DATA_ROOTS": "/"},
            {"working_dir": "/"},
        ],
    )
    @pytest.mark.usefixtures("registered")
    def test_who_starts_a_run_chooses_neither_command_nor_environment_nor_folder(self, chosen: dict[str, Any]) -> None:
        from prefect.exceptions import PrefectHTTPStatusError

        with get_client(sync_client=True) as client:
            train = client.read_deployment_by_name("train/train")
            with pytest.raises(PrefectHTTPStatusError, match=r"409|422"):
                client.create_flow_run_from_deployment(train.id, job_variables=chosen)

    @pytest.mark.usefixtures("registered")
    def test_request_that_the_form_would_refuse_is_refused_by_the_server(self) -> None:
        from prefect.exceptions import PrefectHTTPStatusError

        with get_client(sync_client=True) as client:
            train = client.read_deployment_by_name("train/train")
            for request in (
                {"trials": 0},
                {"search": {"trials": 0}},
                {"limits": {"max_hours": -1}},
                {"no_such_field": 1},
            ):
                with pytest.raises(PrefectHTTPStatusError, match=r"409|422"):
                    client.create_flow_run_from_deployment(train.id, parameters={"request": request})

    @pytest.mark.usefixtures("registered")
    def test_request_is_accepted_in_its_groups_and_flat(self) -> None:
        with get_client(sync_client=True) as client:
            train = client.read_deployment_by_name("train/train")
            for request in ({"data": "mine.csv", "format": "csv", "trials": 2}, {"search": {"trials": 2}}):
                run = client.create_flow_run_from_deployment(train.id, parameters={"request": request})
                assert run.parameters["request"] == request

    @pytest.mark.usefixtures("registered")
    def test_what_an_earlier_version_has_left_is_closed(self, tmp_path) -> None:
        """Its pool let everything be chosen, and its deployments chose."""
        from prefect.client.schemas.actions import WorkPoolUpdate
        from prefect.types.entrypoint import EntrypointType
        from prefect.workers.process import ProcessWorker

        with get_client(sync_client=True) as client:
            template = ProcessWorker.get_default_base_job_template()
            client.update_work_pool(WORK_POOL, WorkPoolUpdate(base_job_template=template))
            former: Any = FLOWS["train"].to_deployment(
                "train",
                work_pool_name=WORK_POOL,
                job_variables={"working_dir": str(tmp_path), "env": {"PREFECT_CLIENT_MAX_RETRIES": "7"}},
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
            former.apply()
            register_deployments(tmp_path)
            train = client.read_deployment_by_name("train/train")
            assert train.job_variables == {}
            assert client.create_flow_run_from_deployment(train.id).job_variables == {}

    @pytest.mark.usefixtures("registered")
    def test_what_a_user_has_set_in_the_ui_outlives_the_next_start(self, tmp_path) -> None:
        from prefect.client.schemas.actions import DeploymentUpdate

        with get_client(sync_client=True) as client:
            train = client.read_deployment_by_name("train/train")
            update = DeploymentUpdate(parameters={"request": {"data": "mine.parquet"}}, paused=True)
            client.update_deployment(train.id, update)
            register_deployments(tmp_path / "elsewhere")
            after = client.read_deployment_by_name("train/train")
            pool = client.read_work_pool(WORK_POOL)
        assert after.id == train.id
        assert after.parameters == {"request": {"source": {"data": "mine.parquet"}}, "fresh": False}
        assert after.paused
        assert pool.base_job_template["job_configuration"]["working_dir"] == str(tmp_path / "elsewhere")

    @pytest.mark.usefixtures("registered")
    def test_nightly_is_off_until_its_data_is_named_and_stays_as_it_was_set(self, tmp_path) -> None:
        assert not schedule().active
        register_deployments(
            tmp_path,
            NightlySchedule(
                data="logs/day_{date}.parquet",
                schema_file="schema.yaml",
                register_as="logs-day",
                trials=4,
                nightly_epochs=2,
                promote=Promote.ALWAYS,
                cron="30 4 * * *",
                timezone="Europe/Berlin",
            ),
        )
        register_deployments(tmp_path)
        assert schedule().active
        chosen = schedule().schedule.model_dump(include={"cron", "timezone"})
        assert chosen == {"cron": "30 4 * * *", "timezone": "Europe/Berlin"}
        with get_client(sync_client=True) as client:
            nightly = client.read_deployment_by_name("nightly/nightly")
        assert flat_options(nightly.parameters["request"]) == {
            "data": str(tmp_path / "logs/day_{date}.parquet"),
            "schema_file": str(tmp_path / "schema.yaml"),
            "timezone": "Europe/Berlin",
            "register_as": "logs-day",
            "trials": 4,
            "nightly_epochs": 2,
            "promote": "always",
        }


def schedule() -> DeploymentSchedule:
    with get_client(sync_client=True) as client:
        (found,) = client.read_deployment_by_name("nightly/nightly").schedules
    return found


@pytest.mark.parametrize("name", sorted(REQUESTS.keys() & FLOWS.keys()))
def test_the_texts_of_a_form_name_options_that_are_fields_of_a_form(name: str) -> None:
    definitions = form(name)["definitions"]
    fields = [field for one in definitions.values() for field in one.get("properties", {}).values()]
    texts = [re.sub("`[^`]*`", "", field.get("description", "")) for field in fields]  # without quoted commands
    named = {option for text in texts for option in re.findall(r"--[a-z][a-z-]*[a-z]", text)}
    every = {option_name(field) for one in JOB_REQUESTS.names for field in JOB_REQUESTS.load(one).options()}
    assert named <= every | {field["title"] for field in fields}
