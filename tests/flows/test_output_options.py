"""How much a command says: `--quiet`, `--verbose`, `--json`."""

import json
import os

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from shunter.flows.command import run_commands
from shunter.flows.command.cli import app
from shunter.flows.command.summary_json import defined
from shunter.masked_console import VARIABLE, is_quiet
from shunter.tasks.step_clock import StepClock

TOP = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
COMMANDS = {name: one for name, one in TOP.items() if not hasattr(one, "commands")} | {
    f"{name} {child}": one for name, group in TOP.items() for child, one in getattr(group, "commands", {}).items()
}
OF_FIGURES = {"train", "tune", "select", "profile", "nightly", "check", "clean", "status", "runs", "datasets", "models"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_can_be_quiet_or_verbose(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert {"--quiet", "-q", "--verbose"} <= options


def test_commands_that_give_figures_give_them_as_json() -> None:
    assert {
        name for name, command in COMMANDS.items() if any("--json" in parameter.opts for parameter in command.params)
    } >= OF_FIGURES


def test_a_quiet_command_says_nothing_but_errors_and_json(tracking_root) -> None:
    def told(*arguments: str) -> str:
        answer = CliRunner().invoke(app, arguments)
        assert answer.exit_code == 0
        return answer.output

    assert told("clean") == "There are no leftovers.\n"
    assert told("clean", "--quiet") == told("runs", "-q") == told("models", "-q") == ""
    assert json.loads(told("clean", "--json", "-q")) == []
    assert not is_quiet(), "only for the length of the command"
    assert told("clean") == "There are no leftovers.\n"


def test_steps_and_processes_of_a_quiet_command_are_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    with StepClock().step("tune"):
        pass
    assert capsys.readouterr().err == ""


def test_a_verbose_command_lets_the_log_of_prefect_through(monkeypatch: pytest.MonkeyPatch, tracking_root) -> None:
    levels = []
    monkeypatch.setattr(
        run_commands, "print_line", lambda _: levels.append(os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"])
    )
    assert CliRunner().invoke(app, ["models", "--verbose"]).exit_code == 0
    assert levels == ["INFO"]


def test_an_undefined_figure_is_null_in_json() -> None:
    value = {"auc": float("nan"), "rows": [1, float("inf")], "name": "x"}
    assert defined(value) == {"auc": None, "rows": [1, None], "name": "x"}
