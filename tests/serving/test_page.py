"""What `docs/how-to/serve.md` shows works: its client asks a server, its commands and options exist."""

import re

import pytest
from typer.main import get_command

from shunter.flows.command.cli import app
from shunter.settings import PROJECT_ROOT
from tests.serving.conftest import Serving

PAGE = (PROJECT_ROOT / "docs" / "how-to" / "serve.md").read_text()
OPTION = re.compile(r"--[a-z][a-z-]+")


def test_its_clients_are_answered(serving: Serving, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with serving(follow_seconds=0) as server:
        names: dict[str, object] = {}
        for block in blocks:
            exec(block.replace(":8080", f":{server.port}"), names)
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\[0\.\d+\]", first)
    assert second == "True"


def test_its_options_exist() -> None:
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in get_command(app).commands.items()  # pyright: ignore[reportAttributeAccessIssue]
    }
    for name, line in re.findall(r"^shunter ([a-z]+)(.*)$", PAGE, re.MULTILINE):
        assert set(OPTION.findall(line)) <= options[name], name
    named = set(OPTION.findall(PAGE))
    assert named <= set().union(*options.values())
    limits = {
        name for name in options["serve"] if name.startswith(("--max", "--batch", "--request", "--follow", "--memory"))
    }
    assert limits <= named
