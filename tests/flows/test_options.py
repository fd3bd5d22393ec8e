"""The command's options are the request's fields."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shunter.errors import RequestError
from shunter.flows.command import cli, flow_commands
from shunter.flows.command.cli import app
from shunter.flows.command.options import JOB_REQUESTS, build, options_of
from shunter.requests import Objective, Request, SelectRequest, TrainRequest
from shunter.requests.groups import option_name
from shunter.requests.job_file import job_text


def flat_defaults() -> dict[str, object]:
    return {parameter.name: parameter.default for parameter in options_of(TrainRequest)}


@pytest.mark.parametrize("request_type", [JOB_REQUESTS.load(name) for name in JOB_REQUESTS.names])
def test_every_field_of_the_request_and_of_its_groups_is_one_option(request_type: type[Request]) -> None:
    groups = request_type.groups()
    options = [parameter.name for parameter in options_of(request_type)]
    fields = [*request_type.model_fields, *(name for group in groups.values() for name in group.model_fields)]
    assert sorted(options) == sorted(set(fields) - groups.keys())
    assert len(fields) == len(set(fields)), "a flat option is of one group"


def test_defaults_give_the_default_request() -> None:
    assert build(TrainRequest, flat_defaults()) == TrainRequest()


def test_limits_are_put_back_in_their_place() -> None:
    request = build(TrainRequest, {**flat_defaults(), "max_hours": 2.0, "objective": "energy"})
    assert request.limits.max_hours == 2.0
    assert request.objective == Objective.ENERGY


def test_value_out_of_range_names_the_option_and_the_value() -> None:
    with pytest.raises(RequestError, match="--max-hours"):
        build(TrainRequest, {**flat_defaults(), "max_hours": -1.0})


def test_cost_without_a_price_says_which_option_is_missing() -> None:
    with pytest.raises(RequestError, match="--price-per-hour"):
        build(TrainRequest, {**flat_defaults(), "max_cost": 3.0})


def test_every_option_explains_itself() -> None:
    groups = TrainRequest.groups().values()
    fields = [TrainRequest.model_fields, *(group.model_fields for group in groups)]
    for name, field in (item for each in fields for item in each.items()):
        assert field.description, option_name(name)
        assert field.description.endswith("."), option_name(name)


def test_a_contradiction_within_a_group_is_said_without_the_group() -> None:
    with pytest.raises(RequestError, match="--min-auc-probability"):
        build(TrainRequest, {**flat_defaults(), "min_auc_probability": 0.9})


def test_a_job_file_gives_what_the_command_line_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the command itself, up to where the flow would start; an option counts even with its default."""
    asked: list[Request] = []

    def keep(flow: str, request: Request, **parameters: bool) -> None:
        asked.append(request)
        raise RequestError("That will do.")

    monkeypatch.setattr(flow_commands, "start", keep)
    monkeypatch.setattr(cli, "prepare_environment", lambda *, debug: None)  # it is for a whole process
    (tmp_path / "job.yaml").write_text(job_text(TrainRequest(data="a.csv", trials=3, seed=7, max_hours=2), "train"))
    path = str(tmp_path / "job.yaml")
    for command in (["train", "--config", path, "--max-hours", "1", "--seed", "0"], ["select", "--config", path]):
        assert CliRunner().invoke(app, command).exit_code == 2
    assert asked == [
        TrainRequest(data="a.csv", trials=3, seed=0, max_hours=1),
        SelectRequest(data="a.csv", trials=3, seed=7, max_hours=2),
    ]


def test_a_dry_run_asks_for_the_choice_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, Request]] = []

    def start(flow: str, request: Request) -> None:
        started.append((flow, request))
        raise RequestError("That will do.")

    monkeypatch.setattr(flow_commands, "start", start)
    monkeypatch.setattr(cli, "prepare_environment", lambda *, debug: None)
    command = ["train", "--dry-run", "--data", "a.csv", "--max-hours", "2", "--register-as", "shop"]
    assert CliRunner().invoke(app, command).exit_code == 2
    assert started == [
        ("shunter.flows.selection:choose_placement", SelectRequest(data="a.csv", max_hours=2, offers="local"))
    ]


def test_the_plan_of_a_dry_run_names_what_would_be_done() -> None:
    request = TrainRequest(trials=1, ensemble_size=1, max_epochs=4, max_hours=2, register_as="shop")
    assert flow_commands.plan_of(request, "cpu x1") == (
        "Would try 1 setting of dlrm on cpu x1, each for 4 epochs at most.",
        "Would keep the best of them alone, within --max-hours 2, and register it as 'shop'.",
        "Nothing was trained: leave out --dry-run to begin.",
    )
    assert "as many settings as its budget permits" in flow_commands.plan_of(TrainRequest(search_minutes=5), "")[0]
    assert flow_commands.plan_of(TrainRequest(model="lightgcn"), "cpu x1")[0].startswith(
        "Would try 9 settings of lightgcn on cpu x1"
    )
    assert "an ensemble of 8 at most, within no limit" in flow_commands.plan_of(TrainRequest(), "")[1]
