"""What every executor promises: the same training, wherever it runs."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from shunter.engine.checkpoint.checked_files import write_text
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.executors.role import Executor
from shunter.engine.executors.separate_process import SubprocessExecutor
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.results import EpochReport, TrainResult
from shunter.errors import RequestError
from shunter.extensions.distributed.executors.process_group import ProcessGroup
from shunter.extensions.distributed.executors.ray.cluster import Cluster, open_cluster
from shunter.extensions.distributed.training import Machine, Sharding, plan
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.listeners import listening, public, started_with
from tests.ray_clusters import ray_cluster_of

pytestmark = pytest.mark.usefixtures("warm_processes")

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=128)
MACHINE = Machine(memory_bytes=2 << 30, memory_bytes_per_second=1e10, link_bytes_per_second=1e9)
RATES = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)
SCHEDULE = Schedule(max_epochs=2)
LASTING = Schedule(max_epochs=10, patience=10)  # long enough that a crowded machine hears of an interruption before
LONG = Schedule(max_epochs=10_000, patience=10_000)
CLOSE = 1e-5  # many processes add in another order


class StrangeError(Exception):
    """Not one of ours, and known to nobody but the hook."""


@pytest.fixture(scope="module")
def nodes(ray_node: dict[str, Any]) -> Iterator[Cluster]:
    """A real cluster of two nodes on this machine."""
    with ray_cluster_of(ray_node, second={}) as made, open_cluster(str(made.address)) as cluster:
        yield cluster


def on_nodes(cluster: Cluster, processes: int) -> Executor:
    at = {"accelerator": f"cpu@{next(iter(cluster.nodes))}", "processes": processes}
    return cluster.executor(PLACEMENT.model_copy(update=at))


def group() -> ProcessGroup:
    return ProcessGroup(PLACEMENT.model_copy(update={"processes": 2}), Sharding(machine=MACHINE))


EXECUTORS: dict[str, Callable[[], Executor]] = {
    "here": lambda: InProcessExecutor(PLACEMENT),
    "own process": lambda: SubprocessExecutor(PLACEMENT, cores=1),
    "process group": group,
}


ON_CLUSTER = {"node": 1, "two nodes": 2}


@pytest.fixture(
    scope="module",
    params=[
        *EXECUTORS,
        # `test_cluster` and `test_group` of Ray show the most of it in clusters of their own.
        *(pytest.param(name, marks=pytest.mark.long) for name in ON_CLUSTER),
    ],
)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param in ("process group", "two nodes"):
        pytest.importorskip("torchrec")
    if request.param in ON_CLUSTER:
        made = on_nodes(request.getfixturevalue("nodes"), ON_CLUSTER[request.param])
    else:
        made = EXECUTORS[request.param]()
    yield made
    made.close()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


def job_of(dataset: Dataset, schedule: Schedule = SCHEDULE, placement: Placement = PLACEMENT) -> ClickJob:
    return TrainingJob(dataset, model_spec(embedding_dim=8), RATES, execution_of(placement), schedule)


@pytest.fixture(scope="module")
def plain(dataset: Dataset) -> TrainResult:
    return train(job_of(dataset))


def kept_in(folder: Path) -> Checkpointing:
    """Where a state is kept, with the machine that decides on the division of tables: measured, it would vary."""
    folder.mkdir(exist_ok=True)
    write_text(folder / plan.MACHINE, json.dumps({"processes": 2, **asdict(MACHINE)}))
    return Checkpointing(folder, steps=1)


@pytest.fixture(scope="module")
def undisturbed(
    executor: Executor, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainResult, list[EpochReport], list[tuple[int, int]]]:
    """A whole training there, and what its hooks were told."""
    epochs: list[EpochReport] = []
    steps: list[tuple[int, int]] = []
    hooks = Hooks(on_epoch=epochs.append, on_step=lambda done, total: steps.append((done, total)))
    with executor.meter() as meter:
        result = executor.run(job_of(dataset), hooks, kept_in(tmp_path_factory.mktemp("undisturbed")))
    assert meter.reading.seconds > 0
    return result, epochs, steps


def assert_same_weights(left: TrainResult, right: TrainResult) -> None:
    for name, weight in left.model.state_dict().items():
        assert weight.equal(right.model.state_dict()[name]), name


def assert_nearly_the_same_weights(left: TrainResult, right: TrainResult) -> None:
    """All but a few: a row whose gradients cancel moves as far as any other, whither rounding says."""
    for name, weight in left.model.state_dict().items():
        away = (weight - right.model.state_dict()[name]).abs()
        assert (away > CLOSE).float().mean() < 0.05, name
        assert away.max() < 1e-2, name


def test_it_is_the_training_of_one_process_and_its_hooks_are_called_in_order(
    executor: Executor, undisturbed: tuple[TrainResult, list[EpochReport], list[tuple[int, int]]], plain: TrainResult
) -> None:
    result, epochs, steps = undisturbed
    if executor.placement.processes > 1:
        assert_nearly_the_same_weights(result, plain)
        assert result.validation.ne == pytest.approx(plain.validation.ne, rel=1e-3)
    else:
        assert_same_weights(result, plain)
        assert result.validation.ne == plain.validation.ne
    assert result.stop_reason == plain.stop_reason
    assert result.history == tuple(epochs)
    assert [report.epoch for report in epochs] == [1, 2]
    assert steps == sorted(steps)
    assert steps[-1] == (plain.history[-1].step, plain.history[-1].step)
    assert result.peak_memory_bytes > 0


def test_a_reason_to_stop_ends_it_with_that_reason(executor: Executor, dataset: Dataset) -> None:
    figures = executor.figures(job_of(dataset, LONG), Hooks(should_stop=lambda: ENOUGH))
    assert figures.stop_reason == ENOUGH
    assert not hasattr(figures, "model"), "nobody asked for the weights"


def test_what_a_hook_raises_ends_it_and_reaches_the_caller(executor: Executor, dataset: Dataset) -> None:
    def refuse(report: EpochReport) -> None:
        raise StrangeError(report.epoch)

    with pytest.raises(StrangeError):
        executor.figures(job_of(dataset, LONG), Hooks(on_epoch=refuse))


def test_an_error_of_ours_arrives_as_itself(executor: Executor, dataset: Dataset) -> None:
    placement = PLACEMENT.model_copy(update={"batch_size": 100_000, "accelerator": executor.placement.accelerator})
    here = executor.placement
    executor.placement = placement  # a cluster takes the batch from it
    try:
        with pytest.raises(RequestError, match="100000"):
            executor.figures(job_of(dataset, placement=placement))
    finally:
        executor.placement = here


def test_interrupted_it_saves_its_state_and_goes_on_from_there_bit_by_bit(
    executor: Executor, dataset: Dataset, tmp_path: Path
) -> None:
    if executor.placement.processes > 1:
        undisturbed = executor.run(job_of(dataset, LASTING), Hooks(), kept_in(tmp_path / "undisturbed"))
    else:
        undisturbed = train(job_of(dataset, LASTING))
    checkpointing = kept_in(tmp_path / "interrupted")

    def interrupt(report: EpochReport) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.run(job_of(dataset, LASTING), Hooks(on_epoch=interrupt), checkpointing)
    assert len(list(checkpointing.directory.iterdir())) > 1, "a state beside the speed"
    steps: list[int] = []
    hooks = Hooks(on_step=lambda done, total: steps.append(done))
    resumed = executor.run(job_of(dataset, LASTING), hooks, checkpointing)
    assert min(steps) > 1, "it did not begin anew"
    assert_same_weights(resumed, undisturbed)


def test_nobody_listens_to_other_machines(
    executor: Executor, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the environment names a network, as one that several machines share may."""
    if "@" in executor.placement.accelerator:
        pytest.skip("a cluster is there for other machines")
    outside = [name for _, name in socket.if_nameindex() if not name.startswith("lo")]
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(variable, outside[0] if outside else "lo")
    addresses: set[str] = set()
    has_ended = threading.Event()

    def watch() -> None:  # from the start on, for what is told of an epoch may come when the processes have ended
        while not has_ended.wait(0.02):
            for process in started_with("shunter.engine.executors", by=psutil.Process()):
                addresses.update(listening(process))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        executor.figures(job_of(dataset))
    finally:
        has_ended.set()
        watching.join()
    assert not public(addresses)
    assert bool(addresses) == isinstance(executor, ProcessGroup), "who listens for its own is seen"
