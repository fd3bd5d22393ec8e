"""The command's options are the request's fields."""

import pytest

from flows.options import build, option_name, options_of
from shunter.errors import RequestError
from shunter.requests.training import Limits, Objective, TrainRequest


def flat_defaults() -> dict[str, object]:
    return {parameter.name: parameter.default for parameter in options_of(TrainRequest)}


def test_every_field_of_the_request_and_of_its_limits_is_one_option() -> None:
    names = set(flat_defaults())
    assert names == (set(TrainRequest.model_fields) - {"limits"}) | set(Limits.model_fields)


def test_defaults_give_the_default_request() -> None:
    assert build(TrainRequest, flat_defaults()) == TrainRequest()


def test_limits_are_put_back_in_their_place() -> None:
    request = build(TrainRequest, {**flat_defaults(), "max_hours": 2.0, "objective": "energy"})
    assert request.limits.max_hours == 2.0
    assert request.objective == Objective.ENERGY


def test_value_out_of_range_names_the_option_and_the_value() -> None:
    with pytest.raises(RequestError, match=r"^--max-hours -1\.0: input should be greater than 0\.$"):
        build(TrainRequest, {**flat_defaults(), "max_hours": -1.0})


def test_cost_without_a_price_says_which_option_is_missing() -> None:
    with pytest.raises(RequestError, match="add --price-per-hour"):
        build(TrainRequest, {**flat_defaults(), "max_cost": 3.0})


def test_every_option_explains_itself() -> None:
    for name, field in {**TrainRequest.model_fields, **Limits.model_fields}.items():
        assert field.description, option_name(name)
        assert field.description.endswith("."), option_name(name)
