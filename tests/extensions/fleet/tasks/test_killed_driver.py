"""The driver of a live fleet is killed, twice, with a signal that nobody can catch: the next one goes on."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shunter.engine.checkpoint.generations import NEWEST
from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Execution
from shunter.engine.loop.trainer import train
from shunter.extensions.fleet.tasks.jobs import training_of
from shunter.ingestion.request import ingest_request
from shunter.requests import TrainRequest
from shunter.settings import PROJECT_ROOT, Settings
from tests.ray_clusters import ray_cluster_of

pytestmark = pytest.mark.long
PATIENCE_SECONDS = 300.0
KILLS, CHECKPOINTS = 2, 3  # how often a driver is killed, and after how many checkpoints
TRAIN: dict[str, Any] = {
    "data": "synthetic:12000", "model": "dnn", "batch_sizes": "16", "max_epochs": 6, "set": ["patience=99"]
}  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, ray_node: dict[str, Any]) -> Iterator[str]:
    """A cluster of one node with one core."""
    with ray_cluster_of(ray_node, tmp_path_factory.mktemp("node"), cores_of_head=0, node={"training": 1}) as made:
        yield str(made.address)


def test_a_fleet_goes_on_when_its_driver_is_killed_again_and_again(
    address: str, tmp_path: Path, furnished_home: Path
) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(json.dumps({"jobs": [{"name": "a", "train_seconds": {"cpu": 60}, "train": TRAIN}]}))
    for _ in range(KILLS):
        driver = start(address, jobs)
        until_saved(CHECKPOINTS, driver)
        driver.kill()
        driver.wait()
    last = start(address, jobs)
    printed, _ = last.communicate(timeout=PATIENCE_SECONDS)
    assert last.returncode == 0, printed
    assert "a begins" not in printed, "it goes on where it was"
    assert "in 3 stretches" in printed
    request = TrainRequest(**TRAIN)
    dataset, report = ingest_request(request)
    assert report.reused
    (folder,) = Settings().runs_directory.glob("fleet-*/jobs/a")
    ours = load_model(folder).state_dict()
    theirs = train(replace(training_of(request, dataset), execution=Execution(batch_size=16))).model.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name


def start(address: str, jobs: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.extensions.fleet.tasks.killed_driver", address, str(jobs)]
    return subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until_saved(times: int, driver: subprocess.Popen[str]) -> None:
    """Until so many more checkpoints have come home, each of which changes a file of the job's folder."""
    seen = {newest_change()}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(seen) <= times:
        assert driver.poll() is None, driver.communicate()[0]
        assert time.monotonic() < deadline, "it does not come that far"
        time.sleep(0.02)
        seen.add(newest_change())


def newest_change() -> int:
    """When a checkpoint of the job last came home, in nanoseconds; 0 before the first."""
    found = list(Settings().runs_directory.glob(f"fleet-*/jobs/a/**/{NEWEST}"))
    with suppress(FileNotFoundError):
        return max((path.stat().st_mtime_ns for path in found), default=0)
    return 0
