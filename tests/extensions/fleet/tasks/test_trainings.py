"""Jobs of a fleet on a real Ray cluster of nodes on this machine: moved, lost, and the weights none the worse."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.extensions.distributed.executors.ray.cluster import open_cluster
from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.files import OwnJob
from shunter.extensions.fleet.live.driver import Driver, DriverContext
from shunter.extensions.fleet.live.record import Status
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.tasks.jobs import FleetJob
from shunter.extensions.fleet.tasks.trainings import RayTrainings
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.tracking.runs import closing, start_run
from shunter.tracking.tree import read_tree
from tests.engine.synthetic import write_dataset
from tests.ray_clusters import ray_cluster_of

pytestmark = pytest.mark.slow
MOVE_AT, KILL_AT = 0.2, 0.6  # shares of the training


@pytest.fixture(scope="module")
def ray_cluster(
    tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path], ray_node: dict[str, Any]
) -> Iterator[Any]:
    """A head that only orders, and a worker; their caches are not ours."""
    nodes: dict[str, Any] = {name: {"training": 1} for name in ("steady", "doomed")}
    with ray_cluster_of(ray_node, furnish(tmp_path_factory.mktemp("node")), **nodes) as made:
        yield made


class Disturbing:
    """Begins on one node, moves the job to the other, and pulls the plug of that one."""

    name = "disturbing"
    round_seconds = 0.2

    def __init__(self, pull: Callable[[], None]) -> None:
        self._pull, self.places = pull, list[str]()

    def decide(self, board: Board) -> float | None:
        names = [machine.name for machine in board.cluster.machines]
        for state in list(board.running.values()):
            assert state.placement is not None
            here = names[state.placement[0][0]]
            share = state.done / state.job.work.count  # type: ignore[attr-defined]
            if here == "steady" and len(self.places) == 1 and share >= MOVE_AT:
                board.stop(state)
            elif here == "doomed" and share >= KILL_AT and self._pull is not None:
                self._pull()
                self._pull = lambda: None
        for state in list(board.waiting.values()):
            name = "steady" if not self.places or not board.free[names.index("doomed")] else "doomed"
            board.start(state, ((names.index(name), 1),))
            self.places.append(name)
        return None


def test_a_job_in_two_processes_trains_on_two_nodes_together(
    ray_cluster: Any, tmp_path: Path, tracking_root: Path
) -> None:
    """No node has two cores; a core and its memory are set aside on each."""
    pytest.importorskip("torchrec")
    dataset = write_dataset(tmp_path / "data", rows=1_000)
    request = TrainRequest(data="a.csv", processes=2)
    training = TrainingJob(
        dataset, model_spec(embedding_dim=8), Hyperparameters(), Execution(batch_size=128), Schedule(max_epochs=2)
    )
    own = OwnJob(name="wide", accelerators=2, train_seconds={"cpu": 10.0}, server_memory_gib=0.25, train=request)
    run_id = start_run("fleet", "fleet")
    began = time.monotonic()
    with closing(run_id), open_cluster(str(ray_cluster.address), "training") as cluster:
        trainings = RayTrainings(
            cluster,
            address=str(ray_cluster.address),
            resource="training",
            jobs={"wide": FleetJob(own, request, dataset, training)},
            directory=tmp_path / "jobs",
            run_id=run_id,
            checkpoint_seconds=60,
            finish=lambda job, trained, directory: {"epochs": float(len(trained.history))},
        )
        with trainings:
            driver = Driver(
                [own.job()], make_policy("fifo"), trainings, DriverContext(lambda: time.monotonic() - began)
            )
            driver.run()
        (outcome,) = driver.schedule().outcomes
        (span,) = driver.schedule().spans
        assert driver.jobs["wide"].figures == {"epochs": 2.0}
        assert outcome.accelerators == 2
        names = {driver.cluster.machines[machine].name for machine, _ in span.placement}
        assert names == {"steady", "doomed"}
        assert [count for _, count in span.placement] == [1, 1]
        assert sorted(cluster.nodes_together) == ["doomed", "steady"]


def test_a_moved_and_a_lost_training_has_the_weights_of_an_undisturbed_one(
    ray_cluster: Any, tmp_path: Path, tracking_root: Path
) -> None:
    dataset = write_dataset(tmp_path / "data", rows=8_000)
    training = TrainingJob(
        dataset,
        model_spec(embedding_dim=8),
        Hyperparameters(dense_learning_rate=5e-3),
        Execution(batch_size=32),
        Schedule(max_epochs=6, patience=6),
    )
    job = FleetJob(
        OwnJob(name="a", train_seconds={"cpu": 60.0}, server_memory_gib=0.5),
        TrainRequest(data="a.csv"),
        dataset,
        training,
    )
    run_id = start_run("fleet", "fleet")
    policy = Disturbing(lambda: ray_cluster.remove_node(ray_cluster.workers["doomed"], allow_graceful=False))
    began = time.monotonic()
    with closing(run_id), open_cluster(str(ray_cluster.address), "training") as cluster:
        trainings = RayTrainings(
            cluster,
            address=str(ray_cluster.address),
            resource="training",
            jobs={"a": job},
            directory=tmp_path / "jobs",
            run_id=run_id,
            checkpoint_seconds=0.5,
            finish=lambda job, trained, directory: {"epochs": float(len(trained.history))},
        )
        said: list[str] = []
        with trainings:
            driver = Driver(
                [job.job], policy, trainings, DriverContext(lambda: time.monotonic() - began, say=said.append)
            )
            driver.run()
    assert driver.jobs["a"].status is Status.FINISHED, said
    assert policy.places == ["steady", "doomed", "steady"]
    # Either is noticed first: that the machine is gone, or that the training on it is.
    assert any("Machine doomed is gone" in said_so or "its last checkpoint is kept" in said_so for said_so in said)
    ours = load_model(trainings.directory_of("a")).state_dict()
    theirs = train(training).model.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name
    attempts = read_tree(run_id).children
    assert sorted(attempt.status for attempt in attempts) == ["FAILED", "FINISHED", "KILLED"]
    assert driver.jobs["a"].figures == {"epochs": 6.0}
