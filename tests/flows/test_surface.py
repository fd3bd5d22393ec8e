"""What a person reads of the command: descriptions, help, summaries. The one place that asserts their wording."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer._click.exceptions import BadOptionUsage
from typer.main import get_command
from typer.testing import CliRunner

from shunter.flows.command.cli import app
from shunter.flows.command.command_registry import COMMANDS
from shunter.flows.command.help import COMMON, FEW, usage_message
from shunter.model_families import model_names
from shunter.settings import PROJECT_ROOT

MOST_SHOWN = 20
LINE, OPTION = 60, 100  # most characters


def commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command below one with its words."""
    for child, value in getattr(command, "commands", {}).items():
        yield f"{name} {child}".strip(), value
        yield from commands(value, f"{name} {child}".strip())


ALL = dict(commands(get_command(app)))
MANY = [name for name, one in ALL.items() if sum(option.name != "help_all" for option in one.params) >= FEW]


def help_of(name: str, option: str) -> str:
    done = CliRunner().invoke(app, [*name.split(), option], prog_name="shunter")
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("name", COMMANDS.names)
def test_a_command_is_described_in_one_short_sentence(name: str) -> None:
    line = str(COMMANDS.entry(name).capabilities["help"])
    assert len(line) <= LINE
    assert line.endswith(".")


@pytest.mark.parametrize("name", sorted(ALL))
def test_an_option_is_described_in_a_line(name: str) -> None:
    texts = {one.opts[0]: one.help for one in ALL[name].params if getattr(one, "help", None)}
    assert {option: text for option, text in texts.items() if len(text) > OPTION or not text.endswith(".")} == {}


@pytest.mark.parametrize("name", sorted(ALL))
def test_help_of_every_command_shows_its_usage(name: str) -> None:
    assert f"Usage: shunter {name}" in help_of(name, "--help")


def test_the_list_of_commands_is_not_cut() -> None:
    assert "..." not in help_of("", "--help").replace("[ARGS]...", "")


def test_commands_with_many_options_show_the_common_ones() -> None:
    assert MANY == ["train", "tune", "select", "nightly", "plan", "plan scale"]
    names = {one.name for name in MANY for one in ALL[name].params}
    assert COMMON - {"help"} <= names


@pytest.mark.parametrize("name", ["train", "tune", "select", "nightly", "plan", "runs"])
def test_help_shows_few_options_and_all_on_request(name: str) -> None:
    def options(text: str) -> set[str]:
        return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE))

    short, whole = help_of(name, "--help"), help_of(name, "--help-all")
    assert "..." not in short.replace("[ARGS]...", "")
    assert len(options(short)) <= MOST_SHOWN
    assert ("--help-all" in options(short)) == (name in MANY)
    declared = {option for one in ALL[name].params for option in one.opts if option.startswith("--")}
    assert options(whole) - {"--help"} == declared - {"--help-all"}


def test_the_page_of_options_names_those_that_there_are() -> None:
    page = "".join(path.read_text() for path in sorted((PROJECT_ROOT / "docs" / "reference").glob("options*.md")))
    known = {option for one in ALL.values() for parameter in one.params for option in parameter.opts}
    assert set(re.findall(r"^- `(--[a-z-]+)`:", page, re.MULTILINE)) <= known
    assert all(f"`{family}`" in page for family in model_names())


@pytest.mark.parametrize("switch", ["--help", "--help-all"])
def test_every_switch_that_was_given_a_value_is_told_to_be_one(switch: str) -> None:
    def told(option: str) -> str:
        with pytest.raises(BadOptionUsage) as caught:
            CliRunner().invoke(app, ["train", f"{option}=1"], standalone_mode=False, catch_exceptions=False)
        return usage_message(caught.value).replace(option, "")

    assert told(switch) == told("--json")
