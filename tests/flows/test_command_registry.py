"""Commands are known by plain data: listed without an import, added by other distributions."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperCommand

from shunter.flows.command.cli import app
from shunter.flows.command.command_registry import COMMANDS, load_command

WIDE = 500
LISTED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from typer.testing import CliRunner
from shunter.flows.command.cli import app
before = set(sys.modules)
done = CliRunner().invoke(app, sys.argv[2:], prog_name="shunter")
loaded = sorted(name for name in set(sys.modules) - before if name.startswith("shunter."))
print(json.dumps({"code": done.exit_code, "output": done.output, "loaded": loaded}))
"""


def listed(folder: Path, *arguments: str) -> dict[str, Any]:
    program = [sys.executable, "-c", LISTED, str(folder), *arguments]
    return json.loads(subprocess.run(program, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("name", COMMANDS.names)
def test_the_line_of_a_command_begins_its_own_help(name: str) -> None:
    line = TyperCommand(name, help=str(COMMANDS.entry(name).capabilities["help"]))
    assert load_command(name).get_short_help_str(WIDE) == line.get_short_help_str(WIDE)


def test_the_list_of_commands_imports_none_of_them(tmp_path: Path) -> None:
    targets = {COMMANDS.entry(name).target.partition(":")[0] for name in COMMANDS.names}
    found = listed(tmp_path, "--help")
    assert found["code"] == 0
    assert targets.isdisjoint(found["loaded"])


def test_the_commands_are_those_of_the_registry() -> None:
    commands = typer.main.get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    assert list(commands) == [name for name in COMMANDS.names if " " not in name]
    assert list(commands["fleet"].commands) == ["simulate", "run", "learn"]
    assert "shunter" not in commands


def test_another_distribution_adds_commands(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text(
        "from shunter.flows.command.command_registry import command_entry\n"
        "FIRST = command_entry('acme:hello', 'Print a greeting.')\n"
        "SECOND = command_entry('acme:hello', 'Print a greeting in the group.')\n"
        "def hello(name: str = 'you') -> None:\n"
        "    '''Print a greeting.'''\n"
        "    print(f'hello:{name}')\n"
    )
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[shunter.commands]\nhello = acme:FIRST\nfleet hello = acme:SECOND\n")
    assert "  hello " in listed(tmp_path, "--help")["output"]
    assert listed(tmp_path, "hello", "--name", "Ada")["output"] == "hello:Ada\n"
    assert listed(tmp_path, "fleet", "hello")["output"] == "hello:you\n"
