"""Signals of terminals and of orchestrators end a command as Ctrl-C does, and leave no process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from shunter.flows.command import temporary_server_process
from shunter.flows.command.terminal import INTERRUPTED
from tests.faults.household import SHUNTER

ENDING = [signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM]
PATIENCE_SECONDS = 120
SLEEPING = """
import os, sys, time
import shunter.flows.command.cli
from shunter.flows.cli import main
def app(prog_name):
    print("begun", flush=True)
    time.sleep(60)
shunter.flows.command.cli.app = app
main()
"""


@pytest.fixture(autouse=True)
def taken_signals() -> Iterator[None]:
    """Let new processes take the signals, also where the tests were started to ignore them, as with `&` or `nohup`."""
    ignored = [number for number in ENDING if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def when_begun(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    process.stdout.readline()


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_a_command_with_the_code_of_ctrl_c(number: signal.Signals) -> None:
    program = [sys.executable, "-c", SLEEPING]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        when_begun(process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == INTERRUPTED
    assert len(errors.splitlines()) == 1


def test_a_command_under_nohup_outlives_its_terminal() -> None:
    program = ["nohup", sys.executable, "-c", SLEEPING]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        when_begun(process)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.kill()


def test_the_server_ends_when_its_command_is_gone() -> None:
    program = [sys.executable, str(temporary_server_process.__file__), "127.0.0.1", "0"]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()  # as the system does for a process that is killed
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM


def is_training(home: Path) -> bool:
    return any((home / "runs").glob("*/decision.json"))


def has_server(home: Path) -> bool:
    return bool(servers(home))


def servers(home: Path) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline", "environ"]) if _is_server(one, home)]


def _is_server(process: psutil.Process, home: Path) -> bool:
    command, variables = process.info["cmdline"] or (), process.info["environ"] or {}
    return any("temporary_server_process" in part for part in command) and variables.get("SHUNTER_HOME") == str(home)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_there", "number"),
    [
        (has_server, signal.SIGHUP),
        (is_training, signal.SIGTERM),
        (is_training, signal.SIGKILL),
        *(
            pytest.param(is_there, number, marks=pytest.mark.long)
            for is_there, number in (
                (has_server, signal.SIGQUIT),
                (has_server, signal.SIGTERM),
                (has_server, signal.SIGKILL),
                (is_training, signal.SIGHUP),
                (is_training, signal.SIGQUIT),
            )
        ),
    ],
)
def test_a_signal_to_the_whole_terminal_leaves_no_server_and_no_running_run(
    number: signal.Signals, is_there: Callable[[Path], bool], add_profiles: Callable[[Path], Path], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    add_profiles(home)
    environment = {**os.environ, "SHUNTER_HOME": str(home), "PREFECT_HOME": str(home / "prefect")}
    command = [SHUNTER, "train", "--data", "synthetic:6000", "--max-epochs", "50", "--baselines", "none"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and not is_there(home):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    psutil.wait_procs(servers(home), PATIENCE_SECONDS)
    assert not servers(home)
    if number == signal.SIGKILL:
        return
    assert (process.returncode, len(errors.splitlines()) > 0) == (INTERRUPTED, True)
    if is_there is is_training:
        assert "SCHEDULED" in statuses(home)


def statuses(home: Path) -> list[str]:
    script = (
        "import sqlite3, sys; print(*[one for one, in sqlite3.connect(sys.argv[1]).execute('SELECT status FROM runs')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, home / "mlflow" / "mlflow.db"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()
