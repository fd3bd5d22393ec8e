"""Short forms: common options first, the others folded; the same parameters are accepted as before."""

from inspect import signature
from typing import Any

import pytest
from prefect.utilities.callables import ParameterSchema, parameter_schema
from prefect.utilities.schema_tools.validation import validate

from shunter.flows.command import flow_commands
from shunter.operation.deployments import deployed_flows
from shunter.operation.forms import AS_USUAL, CHANGE, arrange, flat_options, shorten
from shunter.requests import Request, TrainRequest
from shunter.requests.groups import title_of

FLOWS = {flow.name: flow for flow in deployed_flows()}


def short_form(name: str) -> ParameterSchema:
    """Schema with which a flow is deployed."""
    schema = parameter_schema(FLOWS[name].fn)
    shorten(schema)
    return schema


def fields_of(schema: ParameterSchema, request: str = "TrainRequest") -> dict[str, Any]:
    assert schema.definitions is not None
    return schema.definitions[request]["properties"]


def is_folded(field: dict[str, Any]) -> bool:
    return [one.get("title") for one in field.get("anyOf", ())] == [AS_USUAL, CHANGE]


def test_data_model_objective_limits_and_budget_come_first_and_everything_else_is_folded() -> None:
    schema = short_form("train")
    fields = sorted(fields_of(schema).items(), key=lambda item: item[1]["position"])
    assert [name for name, _ in fields][:5] == ["source", "architecture", "objective", "limits", "search"]
    assert all(is_folded(field) for _, field in fields[5:])
    for group, shown in {
        "PartsRequest": ["data", "schema_file"],
        "ModelRequest": ["model"],
        "Limits": ["max_hours", "max_kwh", "max_cost", "min_auc"],
        "SearchRequest": ["preset", "trials"],
    }.items():
        assert [name for name, field in fields_of(schema, group).items() if not is_folded(field)] == shown


@pytest.mark.parametrize("name", sorted(FLOWS))
def test_only_what_may_stay_empty_is_called_optional(name: str) -> None:
    schema = short_form(name)
    for definition in (schema.definitions or {}).values():
        for option, field in definition.get("properties", {}).items():
            if "required" in definition and not {"$ref", "anyOf"} & field.keys():
                assert (option in definition["required"]) == (field.get("default") not in (None, "", []))


@pytest.mark.parametrize("name", sorted(FLOWS))
def test_parameters_are_titled_by_their_options(name: str) -> None:
    for parameter, field in short_form(name).properties.items():
        assert field["title"] == ("Options" if parameter == "request" else title_of(parameter))


def test_the_form_of_a_rollback_has_the_options_of_the_command() -> None:
    assert list(short_form("rollback").properties) == list(signature(flow_commands.rollback).parameters)


def test_flat_grouped_and_unfolded_options_are_accepted_with_their_bounds() -> None:
    schema = short_form("train").model_dump()
    for request in (
        {},
        {"data": "mine.csv", "trials": 2, "max_hours": 1.5},
        {"search": {"trials": 2}, "limits": {"max_hours": None}},
        {"search": {"more": {"search_method": "random"}}, "more": {"seed": 3}},
    ):
        assert validate({"request": request, "fresh": False}, schema) == []
    for request in ({"trials": 0}, {"search": {"trials": 0}}, {"more": {"seed": -1}}, {"more": {"none": 1}}):
        assert validate({"request": request, "fresh": False}, schema) != []


def test_what_is_unfolded_is_read_as_the_option_itself() -> None:
    unfolded = {"source": {"data": "a.csv", "more": {"format": "csv"}}, "more": {"seed": 3}}
    assert TrainRequest.model_validate(unfolded) == TrainRequest(data="a.csv", format="csv", seed=3)
    assert TrainRequest.model_validate({"limits": {"more": {"max_watts": 9}}}) == TrainRequest(limits={"max_watts": 9})


def test_parameters_are_arranged_as_the_form_shows_them_whatever_form_they_had() -> None:
    flat = {"data": "a.csv", "format": "csv", "trials": 3, "search_method": "random", "seed": 3, "max_epochs": 2}
    nested = {"source": {"data": "other"}, **flat}
    schema = short_form("train")
    for request in (flat, nested, arrange({"request": flat}, schema)["request"]):
        assert arrange({"request": request, "fresh": True}, schema) == {
            "request": {
                "source": {"data": "a.csv", "more": {"format": "csv"}},
                "search": {"trials": 3, "more": {"search_method": "random"}},
                "training": {"max_epochs": 2},
                "more": {"seed": 3},
            },
            "fresh": True,
        }


@pytest.mark.parametrize("name", sorted({"train", "select", "nightly", "plan", "fleet"} & FLOWS.keys()))
def test_arranged_parameters_are_the_same_request(name: str) -> None:
    kind: type[Request] = FLOWS[name].fn.__annotations__["request"].__origin__
    stored = kind().model_dump(mode="json", exclude_none=True)
    schema = short_form(name)
    arranged = arrange({"request": stored}, schema)
    assert validate(arranged, schema.model_dump()) == []
    assert kind.model_validate(arranged["request"]) == kind()
    assert flat_options(arranged["request"]) == flat_options(stored)
