"""What a user may ask for, and what contradicts itself."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shunter.errors import RequestError
from shunter.flows.command.options import build
from shunter.requests import Limits, Objective, SearchSpaceName, SelectRequest, TrainRequest, Weights

weight = st.floats(1e-3, 1e3).map(lambda number: float(f"{number:g}"))


@given(st.dictionaries(st.sampled_from(Objective), weight, min_size=1))
def test_weights_are_read_back_as_they_are_written(weights: dict[Objective, float]) -> None:
    text = ",".join(f"{name}={value:g}" for name, value in weights.items())
    parsed = Weights.parse(text)
    assert parsed.used == weights
    if len(weights) > 1:
        assert Weights.parse(parsed.text) == parsed
    assert TrainRequest(objective=text, price_per_hour=1, grid="400").objective == parsed.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed", "'speed' is unknown: use one of time, energy, cost"),
        ("", "'' is unknown"),
        ("time,time=2", "the objective time has two weights"),
        ("time=fast", "the weight 'fast' of time is not a number"),
        ("time=-1", "the weight -1 of time must be positive"),
        ("energy=inf", "the weight inf of energy must be positive"),
    ],
)
def test_weights_that_mean_nothing_are_named(text: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainRequest(objective=text)


@pytest.mark.parametrize(
    "options", [{"objective": "cost"}, {"objective": "time=1,cost=1"}, {"limits": Limits(max_cost_per_hour=1)}]
)
def test_what_concerns_cost_needs_a_price_where_only_this_machine_can_be_chosen(options: dict[str, Any]) -> None:
    here: dict[str, Any] = {**options, "offers": "local"}
    with pytest.raises(ValidationError, match="--price-per-hour"):
        TrainRequest(**options)
    with pytest.raises(ValidationError, match="--price-per-hour"):
        SelectRequest(**here)
    TrainRequest(**options, price_per_hour=1)
    SelectRequest(**here, price_per_hour=1)
    SelectRequest(**options)  # the catalogue's have prices of their own


def test_a_price_limit_below_the_only_price_is_a_contradiction() -> None:
    limits = Limits(max_cost_per_hour=2)
    with pytest.raises(ValidationError, match="--max-cost-per-hour"):
        TrainRequest(limits=limits, price_per_hour=3)
    SelectRequest(limits=limits, price_per_hour=3)


@pytest.mark.parametrize(
    ("asked", "trials"),
    [
        ({}, 9),
        ({"preset": "quick"}, 3),
        ({"preset": "thorough"}, 30),
        ({"preset": "thorough", "search_minutes": 5}, None),
        ({"trials": 3}, 3),
        ({"search_minutes": 30}, None),
        ({"search_kwh": 0.1}, None),
        ({"search_minutes": 30, "trials": 3}, 3),
    ],
)
def test_trials_end_a_search_unless_its_own_budget_does(asked: dict[str, float], trials: int | None) -> None:
    assert TrainRequest.model_validate(asked).search.most_trials == trials


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"search_minutes": 61, "limits": Limits(max_hours=1)}, "--search-minutes 61 is more than --max-hours 1"),
        ({"search_kwh": 2, "limits": Limits(max_kwh=1)}, "--search-kwh 2 is more than --max-kwh 1"),
        ({"search_method": "dnas", "search_space": "settings"}, "dnas supports only the search space architecture"),
        ({"search_minutes": 0}, "greater than 0"),
        ({"parallel_trials": 0}, "greater than or equal to 1"),
    ],
)
def test_a_search_that_means_nothing_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainRequest.model_validate(asked)


def test_the_space_follows_the_method_unless_it_is_named() -> None:
    assert TrainRequest().search.space == "settings"
    assert TrainRequest(search_method="dnas").search.space == "architecture"
    assert TrainRequest(search_space=SearchSpaceName.ARCHITECTURE).search.space == "architecture"


def test_an_option_may_be_given_flat_or_in_its_group() -> None:
    folded = TrainRequest(search={"trials": 2, "parallel_trials": 3}, limits={"max_hours": 1})
    assert TrainRequest(trials=2, search={"parallel_trials": 3}, max_hours=1) == folded
    assert TrainRequest.model_validate(folded.flat()) == folded
    assert TrainRequest.model_validate_json(folded.model_dump_json()) == folded
    with pytest.raises(ValidationError, match="no_such_field"):
        TrainRequest(no_such_field=1)


def test_a_changed_copy_is_checked_and_keeps_the_rest() -> None:
    request = TrainRequest(trials=2, parallel_trials=3)
    assert request.model_copy(update={"trials": 4}) == TrainRequest(trials=4, parallel_trials=3)
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        request.model_copy(update={"trials": 0})


def test_set_is_the_same_from_a_command_line_and_a_job_file_in_any_order() -> None:
    by_line = TrainRequest(set=["top_widths=400,400", "batch_norm = true"])
    assert by_line == TrainRequest(set={"batch_norm": True, "top_widths": [400, 400]})
    assert by_line.architecture.set == ("batch_norm=true", "top_widths=400,400")
    assert TrainRequest.model_validate(by_line.flat()) == by_line


@pytest.mark.parametrize(
    ("entries", "words"),
    [(["batch_norm"], "has no value: write it as field=value"), (["dropout=0", "dropout=1"], "gives dropout twice")],
)
def test_what_sets_nothing_or_twice_is_refused(entries: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TrainRequest(set=entries)


@pytest.mark.parametrize(
    ("options", "epochs"), [({}, 9), ({"model": "lightgcn"}, 40), ({"model": "lightgcn", "max_epochs": 3}, 3)]
)
def test_a_model_that_ranks_may_learn_longer_unless_the_request_says(options: dict[str, Any], epochs: int) -> None:
    assert TrainRequest(**options).longest_epochs == epochs
    assert SelectRequest(**options).longest_epochs == epochs


@pytest.mark.parametrize(
    ("data", "name"), [("ml-100k", "ml-100k"), ("a:b@c", "a-b-c"), (".hidden", "hidden"), ("", "shunter")]
)
def test_model_is_named_after_its_data_unless_a_name_is_requested(data: str, name: str) -> None:
    named = TrainRequest().named_after(data)
    assert named.registered_name == name
    assert TrainRequest.model_validate(named.flat()).registered_name == name  # a name that the option takes, too
    assert TrainRequest(register_as="shop").named_after(data).registered_name == "shop"


@pytest.mark.parametrize("option", ["data", "schema_file", "validation", "test"])
@pytest.mark.parametrize("address", ["s3://key:hidden-word@logs/a.csv", "https://h/a.csv?X-Amz-Signature=hidden-word"])
def test_secrets_of_addresses_of_data_are_not_kept_with_a_request(option: str, address: str) -> None:
    with pytest.raises(RequestError) as refused:
        build(TrainRequest, {option: address})
    assert "hidden-word" not in str(refused.value)
    query = "postgresql://host/shop#SELECT * FROM clicks WHERE token=3"
    assert build(TrainRequest, {"data": query}).data == query
