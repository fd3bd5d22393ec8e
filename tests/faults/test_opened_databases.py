"""No process of the project opens a database's files outside SQLite: closing one would drop the locks of all others.

An audit hook in every process records the files that Python opens in the home.
"""

import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from shunter.flows.command.cli import app
from shunter.flows.command.services import free_port
from tests.faults.household import COMMANDS, LOG, SERVERS, TRIED, UNTRIED, Household, write_household
from tests.warm_commands import warm_commands

pytestmark = pytest.mark.slow
HOOK = """
import os, sys

FOLDER, RECORD = {folder!r}, {record!r}

def record(event, arguments):
    if event != "open" or isinstance(arguments[0], int):
        return
    path, _, flags = arguments
    path = os.path.abspath(os.fsdecode(path))
    # A file that the call creates has no connections yet.
    if not path.startswith(FOLDER) or path == RECORD or flags & os.O_EXCL:
        return
    record = os.open(RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(record, f"{{path}}\\n".encode(errors="surrogateescape"))
    os.close(record)

sys.addaudithook(record)
"""
DATABASE = re.compile(r"\.db($|[.-])")
HEADER = b"SQLite format 3\x00"


class Openings:
    """Record of the files below a folder that Python processes open.

    Args:
        folder: Folder to watch.
        hook: Folder for the hook; it belongs on `PYTHONPATH`.
    """

    def __init__(self, folder: Path, hook: Path) -> None:
        self._record = hook / "record"
        (hook / "sitecustomize.py").write_text(HOOK.format(folder=f"{folder}/", record=str(self._record)))

    def paths(self) -> set[Path]:
        """Return all files that were opened."""
        return {Path(line) for line in self._record.read_text(errors="surrogateescape").splitlines()}

    def databases(self) -> list[str]:
        """Return the opened files that belong to a database, by their name or their content.

        Artifacts in MLflow are copies to which no process connects.
        """
        return sorted(str(path) for path in self.paths() if _is_of_database(path) and "artifacts" not in path.parts)


def _is_of_database(path: Path) -> bool:
    return bool(DATABASE.search(path.name)) or (path.is_file() and path.read_bytes()[: len(HEADER)] == HEADER)


@pytest.fixture
def openings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Openings:
    """A record of what processes open that start from now on."""
    hook = tmp_path / "hook"
    hook.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(hook))
    return Openings(tmp_path / "home", hook)


@pytest.fixture
def household(tmp_path: Path, openings: Openings, furnish: Callable[[Path], Path]) -> Iterator[Household]:
    write_household(tmp_path / "folder")
    (tmp_path / "warm").mkdir()
    with warm_commands(tmp_path / "warm") as programs:
        yield Household(tmp_path / "folder", furnish(tmp_path / "home"), programs / "shunter")


def test_the_record_tells_openings_from_connections(tmp_path: Path, openings: Openings) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("connected.db", "opened"):
        with sqlite3.connect(home / name) as tables:
            tables.execute("CREATE TABLE made (number)")
    (home / "text").write_text("no database")
    script = (
        "import sqlite3; sqlite3.connect('connected.db').execute('SELECT * FROM made'); open('opened'); open('text')"
    )
    subprocess.run([sys.executable, "-c", script], cwd=home, check=True)
    assert openings.paths() == {home / "opened", home / "text"}
    assert openings.databases() == [str(home / "opened")]


def test_no_command_opens_a_database_outside_sqlite(household: Household, openings: Openings) -> None:
    household.run("train", *LOG, *TRIED, "--seed", "3")  # with a Prefect server of its own
    household.run("up", "--prefect-port", str(free_port()), "--mlflow-port", str(free_port()))
    try:
        for name, arguments in COMMANDS.items():
            if name in SERVERS:
                process = household.start(name, *arguments)
                assert process.stdout is not None
                while (line := process.stdout.readline()) and "http://127.0.0.1" not in line:
                    continue
                process.send_signal(signal.SIGINT)
                process.communicate()
            else:
                household.run(name, *arguments)
    finally:
        household.run("down")
    assert any(path.suffix == ".safetensors" for path in openings.paths())
    assert openings.databases() == []


def test_every_command_is_tried() -> None:
    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    names = {f"{name} {child}" for name, group in commands.items() for child in getattr(group, "commands", ())}
    alone = {name for name in commands if name != "fleet"}
    assert names | alone == {*COMMANDS, *UNTRIED, "up", "down"}
