"""Commands that share a home with a running training: each row that a process has written stays, also after a kill."""

import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from shunter.flows.command.services import free_port
from shunter.settings import PROJECT_ROOT
from tests.faults.household import COMMANDS, LOG, PATIENCE_SECONDS, TRIED, Household, write_household
from tests.warm_commands import warm_commands

pytestmark = pytest.mark.slow
WRITING = ("clean", "sync", "report", "export")
BESIDE = (*WRITING, "predict", "rollback", "runs", "models", "status")
# A training in small: it opens the store before each write, and a reader of it has not finished.
WRITER = """
import sqlite3, sys
from shunter.tracking.runs import open_run, start_run

run = start_run("writer", "train")
reader = sqlite3.connect(sys.argv[1])
reader.execute("BEGIN")
reader.execute("SELECT count(*) FROM metrics").fetchone()
print(run, flush=True)
for step, _ in enumerate(sys.stdin):
    open_run(run).log_metrics({"written": float(step)}, step)
    print(step, flush=True)
"""


@pytest.fixture(scope="module")
def household(
    tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path], prefect_server: str
) -> Iterator[Household]:
    """A home with two versions of a model, the second the champion."""
    folder = tmp_path_factory.mktemp("household")
    write_household(folder / "folder")
    (folder / "warm").mkdir()
    with warm_commands(folder / "warm") as programs:
        found = Household(folder / "folder", furnish(folder / "home"), programs / "shunter")
        for seed in ("1", "2"):
            found.run("train", *LOG, *TRIED, "--seed", seed, prefect=prefect_server)
        yield found


def beside(name: str) -> tuple[str, ...]:
    """Return the arguments of a command beside a training; there is always a former champion to put back."""
    return {"rollback": (), "clean": ("--quiet",)}.get(name, COMMANDS[name])


def rows(household: Household, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Read from MLflow's tables."""
    with closing(sqlite3.connect(household.home / "mlflow" / "mlflow.db")) as tables:
        return tables.execute(statement, values).fetchall()


def test_acknowledged_rows_survive_commands_and_a_kill(household: Household, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_HOME", str(household.home))
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, household.home / "mlflow" / "mlflow.db"],
        cwd=PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    run, acknowledged = writer.stdout.readline().strip(), []
    for name in BESIDE:
        for _ in range(3):
            print(file=writer.stdin, flush=True)
            acknowledged.append(int(writer.stdout.readline()))
        household.run(name, *beside(name))
    writer.kill()
    writer.communicate()
    written = rows(household, "SELECT step FROM metrics WHERE run_uuid = ? AND key = 'written' ORDER BY step", run)
    assert [step for (step,) in written] == acknowledged == [*range(3 * len(BESIDE))]
    assert rows(household, "PRAGMA integrity_check") == [("ok",)]


def test_trainings_and_commands_share_a_home(household: Household) -> None:
    before = finished(household)
    first = begun(household, "--seed", "3")
    others = [household.start(name, *beside(name)) for name in WRITING]
    second = household.start("train", *LOG, *TRIED, "--seed", "4")
    for process in (first, second, *others):
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, f"{process.args}: {said[-2000:]}"
    assert finished(household) == (before[0] + 2, before[1] + 2)
    assert rows(household, "SELECT name FROM runs WHERE status != 'FINISHED' AND name != 'writer'") == []


@pytest.mark.long
def test_a_training_outlives_the_servers_of_up(household: Household) -> None:
    household.run("up", "--prefect-port", str(free_port()), "--mlflow-port", str(free_port()))
    before = finished(household)
    training = begun(household, "--seed", "5")
    household.run("down")
    said, _ = training.communicate(timeout=PATIENCE_SECONDS)
    assert training.returncode == 0, said[-2000:]
    assert finished(household) == (before[0] + 1, before[1] + 1)


def test_a_server_that_follows_sees_a_rollback(household: Household) -> None:
    server = household.start("serve", "--port", "0", "--follow-seconds", "1")
    try:
        address = ready(server)
        served = version_at(address)
        household.run("rollback", "--to", "1" if served != "1" else "2")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while version_at(address) == served and time.monotonic() < deadline:
            time.sleep(0.2)
        assert version_at(address) == ("1" if served != "1" else "2")
    finally:
        server.terminate()
        server.communicate()


def begun(household: Household, *arguments: str) -> "subprocess.Popen[str]":
    """Start a training, and return once it has opened its run."""
    known = rows(household, "SELECT count(*) FROM runs")
    training = household.start("train", *LOG, *TRIED, *arguments)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while rows(household, "SELECT count(*) FROM runs") == known and time.monotonic() < deadline:
        assert training.poll() is None
        time.sleep(0.1)
    return training


def finished(household: Household) -> tuple[int, int]:
    """Count trainings that finished, and registered versions."""
    trainings = (
        "SELECT count(*) FROM runs JOIN tags USING (run_uuid)"
        " WHERE key = 'run.kind' AND value = 'train' AND status = 'FINISHED'"
    )
    ((count,),) = rows(household, trainings)
    ((versions,),) = rows(household, "SELECT count(*) FROM model_versions")
    return count, versions


def ready(server: "subprocess.Popen[str]") -> str:
    """Return the address that a server prints once it answers."""
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return found[0]
    raise AssertionError(f"the server ended with {server.wait()}")


def version_at(address: str) -> str:
    """Return the version that answers."""
    return httpx.get(f"{address}/v2/models/shunter", timeout=60).json()["versions"][0]
