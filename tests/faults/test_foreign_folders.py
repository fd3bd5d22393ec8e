"""A folder of a stranger: none of its modules and settings files runs when a command is given in it."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shunter.flows.command.services import free_port
from shunter.python_processes import run_python
from shunter.settings import PROJECT_ROOT
from tests.faults.foreign_folder import variables, write_foreign_folder
from tests.faults.household import SHUNTER

PATIENCE_SECONDS = 600
OWN_FOLDERS = ("engine", "extensions", "flows", "hardware", "ingestion", "models", "operation", "planner", "reporting")
OWN_FOLDERS += ("retraining", "search", "serving", "shunter", "tasks", "tracking")


@pytest.fixture
def markers(tmp_path: Path) -> Path:
    """Folder in which whatever runs leaves a file."""
    folder = tmp_path / "markers"
    folder.mkdir()
    return folder


@pytest.fixture
def foreign(tmp_path: Path, markers: Path) -> Path:
    """A folder with a module of every name, and with every settings file that a dependency reads."""
    folder = tmp_path / "foreign"
    write_foreign_folder(folder, markers)
    return folder


def give(folder: Path, home: Path, *arguments: str) -> None:
    """Give a command in a folder; fails unless the command succeeds."""
    done = subprocess.run(
        [SHUNTER, *arguments],
        cwd=folder,
        env=variables(home) | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_started_process_finds_no_module_of_the_current_folder(
    foreign: Path, markers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(foreign)
    for name, value in variables(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    grandchild = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import yaml, json'], check=True)"
    assert run_python("-c", f"import yaml, json, uvicorn; {grandchild}").returncode == 0
    assert not list(markers.iterdir())


def test_relative_home_is_the_same_for_a_started_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHUNTER_HOME", "home")
    told = run_python("-c", "from shunter.settings import Settings; print(Settings().home)")
    assert told.stdout.strip() == str(tmp_path / "home"), told.stderr


def printed(script: str, folder: Path, home: Path) -> list[str]:
    """Return the words that a script prints in a folder."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=folder,
        env=variables(home) | {"PYTHONPATH": str(PROJECT_ROOT / ".links")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_libraries_read_no_settings_of_the_current_folder(foreign: Path, markers: Path, tmp_path: Path) -> None:
    script = (
        "from shunter.flows.command.environment import prepare_environment; prepare_environment(debug=False);"
        "import prefect.main; from prefect.settings import get_current_settings;"
        "print(get_current_settings().logging.config_path, get_current_settings().api.url);"
        "import matplotlib; print(matplotlib.rcParams['text.usetex']);"
        "from pyiceberg.catalog import _ENV_CONFIG as found; print(found.get_catalog_config('shop'))"
    )
    logging = str(tmp_path / "home" / "prefect" / "logging.yml")
    assert printed(script, foreign, tmp_path / "home") == [logging, "None", "False", "None"]
    assert not list(markers.iterdir())


def test_one_function_starts_every_process() -> None:
    """But for the command of the user that gets the notifications."""
    starts = re.compile(
        r"subprocess\.(run|Popen|call|check_\w+)\(|os\.(system|popen|fork|spawn\w+|exec\w+|posix_spawn\w*)\("
    )
    sources = {path for folder in OWN_FOLDERS for path in (PROJECT_ROOT / folder).rglob("*.py")}
    found = {str(path.relative_to(PROJECT_ROOT)) for path in sources if starts.search(path.read_text())}
    assert found == {"shunter/python_processes.py", "tasks/flow_runs.py"}


@pytest.mark.slow
def test_commands_and_servers_run_nothing_of_the_current_folder(
    foreign: Path, markers: Path, tmp_path: Path, add_profiles: Callable[[Path], Path]
) -> None:
    home = add_profiles(tmp_path / "home")
    give(foreign, home, "check", "logs/day_2026-01-01.parquet")
    give(foreign, home, "train", "--data", "logs/day_*.parquet", "--schema", "schema.yaml", "--dry-run")
    ports = ("--prefect-port", str(free_port()), "--mlflow-port", str(free_port()))
    try:
        give(foreign, home, "up", *ports)
    finally:
        give(foreign, home, "down")
    assert not list(markers.iterdir())
