"""The command as a person meets it: help, mistakes, exit codes."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shunter.flows.command.cli import app
from shunter.settings import PROJECT_ROOT

SHUNTER = Path(sys.executable).with_name("shunter")


def shunter(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([SHUNTER, *arguments], capture_output=True, text=True, check=False)


def test_help_imports_no_heavy_library() -> None:
    """What keeps the start short: not one of these is needed to print help."""
    script = (
        "import sys, shunter.flows.cli\n"
        "print(sorted({'torch', 'prefect', 'mlflow', 'optuna', 'polars', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    assert done.stdout.strip() == "[]"


def test_an_error_is_json_too_where_json_was_asked_for() -> None:
    done = shunter("select", "--objective", "time=2,speed=1", "--json")
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["code"]) == ("error", "wrong-request")
    assert "'speed'" in answer["message"]
    assert answer["message"] in done.stderr


def test_packages_of_the_current_folder_shadow_nothing(tmp_path: Path) -> None:
    """Prefect's loader puts the working directory first on the path: a folder `tasks` there is somebody else's."""
    for folder in ("tasks", "models"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("raise SystemExit('a package of the current folder ran')")
    script = "import sys; sys.path.insert(0, '.'); import shunter.flows.train, shunter.models.registry"
    assert subprocess.run([sys.executable, "-c", script], check=False, cwd=tmp_path).returncode == 0


def test_a_log_is_checked_and_its_schema_kept(tmp_path: Path) -> None:
    rows = "".join(f"{row % 3 // 2},u{row % 7},{row % 10 / 4}\n" for row in range(600))
    (tmp_path / "log.csv").write_text("click,user,price\n" + rows)
    given = ["check", str(tmp_path / "log.csv"), "--json"]
    done = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "schema.yaml")])
    assert done.exit_code == 0, done.stderr
    checked = json.loads(done.stdout)
    assert (checked["rows"], checked["bad_rows"]) == (600, 0)
    assert (tmp_path / "schema.yaml").read_text() == checked["schema"]
    again = json.loads(CliRunner().invoke(app, [*given, "--schema", str(tmp_path / "schema.yaml")]).stdout)
    assert (again["rows"], again["positive_share"]) == (600, pytest.approx(1 / 3))


def test_the_version_and_a_short_help() -> None:
    assert shunter("--version").stdout.startswith("shunter 0.")
    for arguments in (("-h",), ("check", "-h")):
        done = shunter(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: shunter" in done.stdout


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGINT, 0.7), (signal.SIGTERM, 0.0)])
def test_who_ends_a_command_is_told_so_in_one_sentence(number: signal.Signals, seconds: float) -> None:
    program = [sys.executable, "-m", "shunter.flows.cli", "train", "--data", "synthetic:2000"]
    former = signal.signal(signal.SIGINT, signal.SIG_DFL)  # what a shell starts with `&` ignores it, as children do
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, former)
    with process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun, and imports what it needs
        time.sleep(seconds)
        process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode != 0
    assert errors == "Interrupted: run the same command again to resume where it stopped.\n"


def test_a_shell_is_told_how_to_complete() -> None:
    """From bash, for the command asks which shell called it, and a plain `sh` completes nothing."""
    called = ["bash", "-c", '"$0" --show-completion; exit $?', str(SHUNTER)]
    assert "complete" in subprocess.run(called, capture_output=True, text=True, check=True).stdout
