"""What `docs/serving.md` shows works: its client asks a server, its commands and options exist."""

import re

import pytest
from typer.main import get_command

from flows.command.cli import app
from shunter.settings import PROJECT_ROOT
from tests.serving.conftest import Serving

PAGE = (PROJECT_ROOT / "docs" / "serving.md").read_text()


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
    (serve,) = [one for name, one in get_command(app).commands.items() if name == "serve"]  # pyright: ignore[reportAttributeAccessIssue]
    known = {option for one in serve.params for option in one.opts}
    own = re.sub(r"^shunter export .*$", "", PAGE, flags=re.MULTILINE)
    named = set(re.findall(r"(?<!predict )--[a-z][a-z-]+", own))
    assert named <= known
    assert {name for name in known if name.startswith(("--max", "--batch", "--request", "--follow"))} <= named
