"""A training in two processes on two nodes of a real Ray cluster on this machine: the weights of one machine."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.executors.role import Choice
from shunter.engine.executors.this_machine import ThisMachine
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import EpochReport, TrainResult
from shunter.extensions.distributed.executors.process_group import group_of_processes
from shunter.extensions.distributed.executors.ray.cluster import Cluster, open_cluster
from shunter.extensions.distributed.executors.ray.training import network_between
from shunter.extensions.distributed.links.nodes import placed as on_node
from shunter.extensions.distributed.tables.sharding_types import Choice as Placed
from shunter.extensions.distributed.training import Division
from shunter.hardware.types import Collective, Placement
from shunter.models.registry import model_spec
from tests.engine.interruptions import assert_same_weights
from tests.engine.synthetic import write_dataset
from tests.ray_clusters import ray_cluster_of

pytest.importorskip("torchrec")
pytestmark = pytest.mark.slow
NODES = ("second", "steady")
EPOCHS = 12  # so that a node dies long before the end


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path]) -> Path:
    """Home of the nodes and of this machine, which has been measured: by the same figures all divide tables alike."""
    return furnish(tmp_path_factory.mktemp("node"))


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_HOME", str(home))


@pytest.fixture(scope="module")
def ray_cluster(home: Path, ray_node: dict[str, Any]) -> Iterator[Any]:
    """A head that only orders, and a node of one core."""
    with ray_cluster_of(ray_node, home, steady={"training": 1}) as made:
        yield made


def add_node(ray_cluster: Any, name: str, ray_node: dict[str, Any]) -> Any:
    node = ray_cluster.add_node(num_cpus=1, **ray_node, resources={"training": 1}, node_name=name)
    ray_cluster.wait_for_nodes()
    return node


@pytest.fixture
def cluster(ray_cluster: Any, ray_node: dict[str, Any]) -> Iterator[tuple[Cluster, Any]]:
    """Two nodes that train, and the second as Ray's handle, which may be killed."""
    second = add_node(ray_cluster, "second", ray_node)
    with open_cluster(str(ray_cluster.address), "training") as opened:
        yield opened, second
    if second in ray_cluster.list_all_nodes():
        ray_cluster.remove_node(second)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


def placed(accelerator: str) -> Placement:
    return Placement(accelerator=accelerator, threads=2, precision="fp32", batch_size=128, processes=2)


def job_of(dataset: Dataset, placement: Placement) -> ClickJob:
    rates = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)
    return TrainingJob(
        dataset,
        model_spec(embedding_dim=8),
        rates,
        execution_of(placement),
        Schedule(max_epochs=EPOCHS, patience=EPOCHS),
    )


def planned(dataset: Dataset) -> Division:
    """Every other table as a whole in one of the processes, the others by row."""
    numbers = range(len(dataset.features.table_rows))
    whole = [Placed("table_wise", (number // 2 % 2,)) for number in numbers]
    rows = Placed("row_wise")
    return Division(tables=tuple(whole[number] if number % 2 else rows for number in numbers))


def kept_in(folder: Path) -> Checkpointing:
    """Where a state is kept."""
    folder.mkdir()
    return Checkpointing(folder, steps=1)


@pytest.fixture(scope="module")
def on_one_machine(dataset: Dataset, home: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """Two processes of this machine, with a thread each."""
    kept = kept_in(tmp_path_factory.mktemp("here") / "checkpoint")
    placement = placed("cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        group_of = partial(group_of_processes, division=planned(dataset))
        executor = ThisMachine(group_of).executor(placement, kept.directory)
        return executor.run(job_of(dataset, placement), Hooks(), kept)


def test_when_a_node_dies_the_processes_go_on_together_and_the_weights_are_those_of_one_machine(
    cluster: tuple[Cluster, Any], ray_cluster: Any, dataset: Dataset, on_one_machine: TrainResult, tmp_path: Path
) -> None:
    """Two processes on two nodes, by a plan; after the second epoch both on the node that is left."""
    opened, second = cluster
    placement = placed("cpu@steady").model_copy(update={"threads": 1})
    slots = opened.slots(placement)
    assert [slot.node.name for slot in slots] == ["steady", "second"]
    epochs: list[int] = []

    def kill_node(report: EpochReport) -> None:
        epochs.append(report.epoch)
        if report.epoch == 2 and len(epochs) == 2:
            ray_cluster.remove_node(second, allow_graceful=False)

    kept = kept_in(tmp_path / "checkpoint")
    executor = opened.divided(planned(dataset)).executor(placement, kept.directory)
    with executor.meter() as meter:
        result = executor.run(job_of(dataset, placement), Hooks(on_epoch=kill_node), kept)
    assert epochs[:2] == [1, 2]
    assert epochs[-1] == EPOCHS
    assert len(opened.moves) == 1
    assert opened.moves[0].endswith("It continues at steady.")
    assert opened.nodes_together == ["steady", "second"]
    assert_same_weights(result, on_one_machine)
    assert [report.epoch for report in result.history] == list(range(1, EPOCHS + 1))
    assert meter.reading.seconds > 0


def test_a_training_begins_where_there_is_room_and_moves_to_the_better_node_that_becomes_free(
    cluster: tuple[Cluster, Any], dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second node is declared the better one, and another program holds its core until the first epoch ends."""
    import ray

    monkeypatch.setattr("shunter.engine.executors.move_monitor.LOOK_SECONDS", 0.0)
    opened, _ = cluster
    better, steady = (placed(f"cpu@{name}").model_copy(update={"processes": 1, "threads": 1}) for name in NODES)
    taken: Any = ray.remote(num_cpus=1)(Other)
    other: Any = taken.options(**on_node(opened.nodes["second"].node_id)).remote()
    ray.get(other.there.remote())
    choices = [Choice(better, 1.0), Choice(steady, 10.0)]
    there = better.accelerator
    opened.prefer(
        choices,
        select_upgrade=lambda totals, here, progress: None if here == there else there,
        may_begin_elsewhere=True,
    )

    def give_way(report: EpochReport) -> None:
        if report.epoch == 1:
            ray.kill(other)

    job = job_of(dataset, better)
    kept = Checkpointing(tmp_path / "checkpoint")
    result = opened.executor(better, kept.directory).run(job, Hooks(on_epoch=give_way), kept)
    assert opened.moves == [
        f"{better.label} is in use: the training begins at {steady.label}.",
        f"{better.label} is free: the training at {steady.label} continues there.",
    ]
    assert_same_weights(result, train(job))


class Other:
    """Another program on a node."""

    def there(self) -> None:
        """Say that it has its core."""


@pytest.mark.long
def test_what_two_processes_of_a_cluster_have_begun_is_ended_by_two_of_this_machine(
    cluster: tuple[Cluster, Any], dataset: Dataset, on_one_machine: TrainResult, tmp_path: Path
) -> None:
    opened, _ = cluster
    kept = kept_in(tmp_path / "checkpoint")
    at = placed("cpu@steady").model_copy(update={"threads": 1})

    def interrupt(report: EpochReport) -> None:
        raise KeyboardInterrupt

    executor = opened.divided(planned(dataset)).executor(at, kept.directory)
    with pytest.raises(KeyboardInterrupt):
        executor.run(job_of(dataset, at), Hooks(on_epoch=interrupt), kept)
    steps: list[int] = []
    hooks = Hooks(on_step=lambda done, total: steps.append(done))
    group_of = partial(group_of_processes, division=planned(dataset))
    here = ThisMachine(group_of).executor(placed("cpu"), kept.directory)
    result = here.run(job_of(dataset, placed("cpu")), hooks, kept)
    assert min(steps) > 1, "it did not begin anew"
    assert_same_weights(result, on_one_machine)


def test_collectives_between_nodes_are_measured_once_a_day(cluster: tuple[Cluster, Any], home: Path) -> None:
    opened, _ = cluster
    known = {one.operation: one for profile in opened.profiles(2) for one in profile.collectives if profile.rated_cores}
    assert set(known) <= set(get_args(Collective))
    assert {(one.processes, one.link) for one in known.values()} == {(2, "gloo between nodes")}
    assert all(one.bytes_per_second > 0 for one in known.values())
    (path,) = home.glob("profiles/network-*.json")
    written = path.read_bytes()
    assert [one.collectives for one in opened.profiles(2)] == [tuple(known.values())] * 2
    assert path.read_bytes() == written
    assert not any(one.collectives == tuple(known.values()) for one in opened.profiles())
    path.write_text("{}")
    assert network_between(list(opened.nodes.values())), "what cannot be read is measured anew"
