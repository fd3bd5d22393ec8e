"""Cores of several kinds in one cluster: as their nodes were started."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shunter.engine.config import Execution
from shunter.extensions.distributed.links.nodes import ClusterNode
from shunter.extensions.fleet.files import OwnJob
from shunter.extensions.fleet.live.role import LiveMachine
from shunter.extensions.fleet.tasks.jobs import FleetJob, by_type
from shunter.extensions.fleet.tasks.trainings import GIB, RayTrainings, Spot, kind_of, machines_of, slots_on
from shunter.hardware.types import Accelerator
from shunter.requests import TrainRequest


@pytest.mark.parametrize(
    ("resources", "kind"),
    [
        ({"CPU": 2.0}, "cpu"),
        ({"CPU": 2.0, "accelerator_type:cpu-old": 1.0}, "cpu-old"),
        ({"CPU": 2.0, "accelerator_type:A100": 1.0}, "cpu"),
    ],
)
def test_cores_are_of_the_kind_that_their_node_was_started_with(resources: dict[str, float], kind: str) -> None:
    node = ClusterNode(node_id="1", name="n", address="a", host="h", accelerators=(), resources=resources)
    assert kind_of(node) == kind


CORES = Accelerator(name="cpu", model="EPYC", kind="cpu", cores=16, memory_bytes=64 * GIB)
GPUS = tuple(
    Accelerator(name=f"cuda:{i}", model="A100", kind="cuda", cores=108, memory_bytes=40 * GIB) for i in range(2)
)
BOX = ClusterNode(
    node_id="1",
    name="box",
    address="a",
    host="h",
    accelerators=(CORES, *GPUS),
    resources={"CPU": 16.0, "GPU": 2.0, "memory": 32.0 * GIB},
)


def test_a_node_with_gpus_offers_the_cores_that_these_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 cores each of two GPUs keeps four; one of them is taken with its own, and two of the other cores."""
    free = {"1": {"CPU": 10.0, "GPU": 1.0, "memory": 30.0 * GIB}}
    monkeypatch.setattr("shunter.extensions.fleet.tasks.trainings.free_resources", lambda: free)
    assert machines_of([BOX]) == [
        LiveMachine("box", "A100", 2, 1, "box", 32.0, 30.0),
        LiveMachine("cpu@box", "cpu", 8, 6, "box", 32.0, 30.0),
    ]


def test_a_seat_takes_what_its_half_of_the_node_gives_and_the_memory_that_its_job_needs() -> None:
    own = OwnJob.model_validate(
        {
            "name": "a",
            "train": {"data": "a.csv"},
            "accelerators": 4,
            "server_memory_gib": 3.0,
            "train_seconds": {"cpu": 1},
        }
    )
    training: Any = SimpleNamespace(execution=Execution(batch_size=64))
    job = FleetJob(by_type(own, ["A100", "cpu"]), TrainRequest(data="a.csv"), cast(Any, None), training)
    for machine, count, placement, resources in (
        ("box", 1, "cuda:0@box", {"CPU": 4.0, "GPU": 1.0, "memory": 3 * GIB}),
        ("cpu@box", 4, "cpu@box", {"CPU": 4.0, "memory": 3 * GIB}),
    ):
        assert job.own.asks("A100" if machine == "box" else "cpu") == count
        (slot,) = slots_on([Spot.of(machine, count, {"box": BOX})], job)
        assert (slot.placement.accelerator, slot.placement.threads) == (placement, 4)
        assert slot.resources == resources


@pytest.mark.parametrize("name", ["..", ".", "../../x", "a/b", "%2E%2E"])
def test_the_folder_of_a_job_lies_in_that_of_the_fleet_whatever_its_name(name: str, tmp_path: Path) -> None:
    trainings = RayTrainings.__new__(RayTrainings)
    trainings._directory = tmp_path
    assert trainings.directory_of(name).resolve().parent == tmp_path.resolve()
