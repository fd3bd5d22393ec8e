"""The study of a search opens in optuna-dashboard, with both objectives, their names and every trial."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.flows.command.services import free_port
from shunter.search.protocol import Outcome
from shunter.search.space.settings import SearchSpace
from shunter.search.study.address import FILE, storage_address
from shunter.search.study.storage import open_study, record, tell

SECONDS = 120


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[str]:
    """Address of a dashboard over a study of three trials."""
    space = SearchSpace()
    study = open_study(storage_address(tmp_path, None), space, cost="step_seconds")
    for state, ne, seconds in (("complete", 0.8, 2e-3), ("complete", 0.9, 1e-3), ("failed", None, None)):
        trial = record(study, space.defaults()[0])
        space.suggest(trial)
        costs: Any = {} if seconds is None else {"step_seconds": seconds}
        tell(study, trial, Outcome(state=state, validation_ne=ne, costs=costs), "step_seconds")  # type: ignore[arg-type]
    port = free_port()
    command = [str(Path(sys.executable).with_name("optuna-dashboard")), f"sqlite:///{tmp_path / FILE}"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "HOME": str(tmp_path)}  # where its server puts a socket
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def ask(address: str, path: str) -> Any:
    """The dashboard's answer, as soon as it is up."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{address}/api/{path}") as answer:
                return json.load(answer)
        except urllib.error.URLError:
            assert time.monotonic() < deadline, "the dashboard does not come up"
            time.sleep(0.2)


def test_study_and_trials_are_there(dashboard: str) -> None:
    [study] = ask(dashboard, "studies")["study_summaries"]
    assert study["study_name"].startswith("tune-")
    assert study["directions"] == ["minimize", "minimize"]
    detail = ask(dashboard, f"studies/{study['study_id']}")
    assert [trial["state"] for trial in detail["trials"]] == ["Complete", "Complete", "Fail"]
    assert detail["trials"][0]["values"] == [0.8, 2e-3]
    assert detail["objective_names"] == ["validation_ne", "step_seconds"]
    assert {name["name"] for name in detail["trials"][0]["params"]} >= {"embedding_dim"}
