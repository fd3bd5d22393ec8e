"""Training on a real Ray cluster of nodes on this machine: chosen by label, followed, lost, moved elsewhere."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun

from shunter.checked_json import read_checked
from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.executors.remote_training import LostError
from shunter.engine.executors.role import Choice
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.probes.measurement import Measurement
from shunter.engine.profiling.profiles import ProfileFile
from shunter.engine.ranking.config import RankingHyperparameters, RankingReport
from shunter.engine.results import EpochReport, TrainResult
from shunter.engine.trained_model import FILE, TrainedModel
from shunter.errors import HardwareError, RequestError, TrainingError
from shunter.extensions.distributed.executors.ray.cluster import Cluster, open_cluster
from shunter.extensions.distributed.executors.ray.node_trainer import (
    copy_directory,
    find_dataset,
    read_pieces,
    write_piece,
)
from shunter.extensions.distributed.executors.ray.slots import WorkerSlot
from shunter.extensions.distributed.executors.ray.training import NodeLostError, _Channel
from shunter.extensions.distributed.links.nodes import free_resources, placed
from shunter.hardware.types import Placement
from shunter.models.graph import graph_spec
from shunter.models.graph.ranker import VectorRanker
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.search.job import SearchJob
from shunter.search.search import search
from shunter.search.space.settings import SearchSpace
from shunter.search.study.best_models import stored_trial_model
from shunter.search.study.loop import Progress
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.engine.interruptions import assert_same_weights
from tests.engine.parts import parts_of
from tests.engine.ranking.data import write_clicks
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.ray_clusters import ray_cluster_of

pytestmark = pytest.mark.slow
SPEC = model_spec(embedding_dim=8)
PATIENCE_SECONDS = 60  # with what Ray does in the background
EPOCHS = 12  # so that a node dies long before the end
SCHEDULE = Schedule(max_epochs=EPOCHS, patience=EPOCHS)
LASTING = Schedule(max_epochs=150, patience=150)  # so that a crowded node hears of an interruption before
SMALL = SearchSpace(embedding_dims=(4, 8), top_widths=(8, 16), most_top_layers=2, bottom_widths=(8,))
LEARNED_WITH = Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1)


@pytest.fixture(scope="module")
def node_home(tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path]) -> Path:
    """Home of the nodes, where this machine has been measured already."""
    return furnish(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def ray_cluster(node_home: Path, ray_node: dict[str, Any]) -> Iterator[Any]:
    """A head that only orders, and a worker with two labels; their caches are not ours."""
    with ray_cluster_of(ray_node, node_home, steady={"training": 1, "steady": 1}) as made:
        yield made


@pytest.fixture(scope="module")
def address(ray_cluster: Any) -> str:
    return str(ray_cluster.address)


@pytest.fixture
def second(ray_cluster: Any, ray_node: dict[str, Any], node_home: Path) -> Iterator[Any]:
    """One more node."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(node_home))
        node = ray_cluster.add_node(num_cpus=1, **ray_node, resources={"training": 1}, node_name="second")
    ray_cluster.wait_for_nodes()
    yield node
    if node in ray_cluster.list_all_nodes():
        ray_cluster.remove_node(node)


@pytest.fixture
def cluster(address: str) -> Iterator[Cluster]:
    """The nodes that are meant for training."""
    with open_cluster(address, "training") as opened:
        yield opened


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=2_000)


def at(node: str) -> Placement:
    return Placement(accelerator=f"cpu@{node}", threads=1, precision="fp32", batch_size=128)


def run(
    cluster: Cluster,
    dataset: Dataset,
    node: str,
    checkpoints: Path | None = None,
    schedule: Schedule = SCHEDULE,
    **options: Any,
) -> TrainResult:
    job, hooks, checkpointing = parts_of(
        dataset, SPEC, LEARNED_WITH, execution_of(at(node)), schedule, checkpoint_directory=checkpoints, **options
    )
    return cluster.executor(at(node), checkpoints).run(job, hooks, checkpointing)


def run_here(dataset: Dataset, schedule: Schedule = SCHEDULE) -> TrainResult:
    return train(TrainingJob(dataset, SPEC, LEARNED_WITH, execution_of(at("here")), schedule))


def test_an_answer_that_was_lost_with_its_node_on_the_way_is_a_loss(
    second: Any, cluster: Cluster, ray_cluster: Any
) -> None:
    """The process had answered, so Ray speaks of a lost object, and no longer of a lost process."""
    import ray
    from ray.exceptions import ObjectLostError

    (node,) = (node for node in cluster.nodes.values() if node.name == "second")
    answer = ray.remote(num_cpus=0, max_retries=0)(_long_answer).options(**placed(node.node_id)).remote()
    assert ray.wait([answer], timeout=PATIENCE_SECONDS, fetch_local=False)[0]
    ray_cluster.remove_node(second, allow_graceful=False)
    actor = SimpleNamespace(messages=SimpleNamespace(remote=lambda seconds: answer))

    def listen() -> None:
        while not _Channel([actor], [WorkerSlot(node, at(node.name), 1)]).receive():
            pass

    with pytest.raises(LostError) as caught:
        listen()
    assert isinstance(caught.value.error, NodeLostError)
    assert isinstance(caught.value.__cause__, ObjectLostError)


def _long_answer() -> list[bytes]:
    """Too long for Ray to send along with the word that it is there."""
    return [b"0" * 2**20]


def test_nodes_are_chosen_by_label_and_an_unknown_label_names_the_others(cluster: Cluster, address: str) -> None:
    assert list(cluster.nodes) == ["steady"]
    with pytest.raises(HardwareError, match="'steddy'"), open_cluster(address, "steddy"):
        pass


def test_a_training_on_a_node_equals_one_here(cluster: Cluster, dataset: Dataset) -> None:
    epochs: list[EpochReport] = []
    steps: list[tuple[int, int]] = []
    with cluster.executor(at("steady")).meter() as meter:
        result = run(
            cluster, dataset, "steady", on_epoch=epochs.append, on_step=lambda done, total: steps.append((done, total))
        )
        assert meter.reading.seconds > 0
    expected = run_here(dataset)
    assert_same_weights(result, expected)
    assert result.validation == expected.validation
    assert [report.epoch for report in epochs] == list(range(1, EPOCHS + 1))
    assert steps[-1] == (11 * EPOCHS, 11 * EPOCHS)
    assert steps == sorted(steps), "progress only moves on"


@pytest.mark.parametrize("family", ["lightgcn", pytest.param("sasrec", marks=pytest.mark.long)])
def test_a_graph_model_is_trained_on_a_node_and_gone_on_with_as_here(
    cluster: Cluster, tmp_path: Path, family: str
) -> None:
    rates = RankingHyperparameters(learning_rate=0.02, negatives=2)
    job: TrainingJob[Any, Any, Any] = TrainingJob(
        write_clicks(tmp_path / "clicks"),
        graph_spec(family, embedding_dim=8),
        rates,
        execution_of(at("steady")),
        Schedule(max_epochs=4, patience=4),
    )

    def interrupt(report: RankingReport) -> None:
        if report.epoch == 2:
            raise KeyboardInterrupt

    executor, kept = cluster.executor(at("steady")), Checkpointing(tmp_path / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        executor.run(job, Hooks(on_epoch=interrupt), kept)
    found = executor.run(job, checkpointing=kept)
    expected = InProcessExecutor(at("here").model_copy(update={"accelerator": "cpu"})).run(job)
    assert_same_weights(found, expected)
    ours, theirs = VectorRanker.of(found.model), VectorRanker.of(expected.model)
    assert torch.equal(ours.item_vectors, theirs.item_vectors)
    assert torch.equal(ours.user_vectors, theirs.user_vectors)
    assert found.validation == expected.validation


def test_data_that_a_node_cannot_see_reach_its_own_cache(cluster: Cluster, dataset: Dataset) -> None:
    import ray

    def hide_and_find(described: Dataset) -> str | None:
        found = find_dataset(replace(described, directory=Path("/nowhere")))
        return None if found is None else str(found)

    there = ray.remote(num_cpus=0)(hide_and_find).options(**placed(cluster.nodes["steady"].node_id))  # pyright: ignore
    assert ray.get(there.remote(dataset)) is None
    moved = dataset.directory.rename(dataset.directory.with_name("moved"))
    ours = replace(dataset, directory=moved)
    for piece in read_pieces(ours, piece_bytes=1000):
        send = ray.remote(num_cpus=0)(write_piece).options(**placed(cluster.nodes["steady"].node_id))  # pyright: ignore
        ray.get(send.remote(dataset, piece))
    copied = ray.get(there.remote(dataset))
    assert copied is not None
    for path in moved.rglob("*"):
        if path.is_file():
            assert (Path(copied) / path.relative_to(moved)).read_bytes() == path.read_bytes()
    assert copied.endswith(str(copy_directory(dataset).relative_to(copy_directory(dataset).parents[1])))


def test_what_fails_there_is_raised_here(cluster: Cluster, dataset: Dataset) -> None:
    placement = at("steady").model_copy(update={"batch_size": 10_000})
    job = TrainingJob(dataset, SPEC, LEARNED_WITH, execution_of(placement), SCHEDULE)
    with pytest.raises(RequestError, match="batch size"):
        cluster.executor(placement).run(job)


def test_a_budget_here_ends_the_training_there(cluster: Cluster, dataset: Dataset) -> None:
    result = run(cluster, dataset, "steady", should_stop=lambda: ENOUGH)
    assert result.stop_reason == ENOUGH


def test_ctrl_c_here_saves_the_state_there_and_the_next_attempt_resumes(
    cluster: Cluster, dataset: Dataset, tmp_path: Path
) -> None:
    def interrupt(report: EpochReport) -> None:
        if report.epoch == 2:
            raise KeyboardInterrupt

    checkpoints = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        run(cluster, dataset, "steady", checkpoints, LASTING, on_epoch=interrupt)
    assert (checkpoints / "checkpoint.json").exists()
    epochs: list[int] = []
    begun = read_json(checkpoints / "checkpoint.json")["state"]["step"] // 11 + 1
    shorter = replace(LASTING, max_epochs=begun + 2)
    resumed = run(cluster, dataset, "steady", checkpoints, shorter, on_epoch=lambda one: epochs.append(one.epoch))
    assert epochs[0] > 1
    assert_same_weights(resumed, run_here(dataset, shorter))


@pytest.mark.long
def test_trials_of_one_search_run_on_two_nodes_at_a_time(
    second: Any, address: str, dataset: Dataset, tracking_root: Path, tmp_path: Path
) -> None:
    parent = start_run_tree(TrainRequest(), dataset)
    under_way: set[str] = set()
    with open_cluster(address, "training") as cluster:
        executors = cluster.executors(at("steady"), 2)
        assert {executor.placement.accelerator for executor in executors} == {"cpu@steady", "cpu@second"}

        def look(progress: Progress) -> None:
            under_way.update(f"{run.info.status}" for run in trial_runs(parent))

        request = TrainRequest(trials=8, max_epochs=4, parallel_trials=2)  # some, however late the second node is
        result = search(
            SearchJob(
                dataset=dataset,
                request=request,
                placement=at("steady"),
                directory=tmp_path,
                parent_run_id=parent,
                space=SMALL,
                keep=1,
            ),
            place=cluster,
            on_trial=look,
        )
        assert cluster.ledger.total_with_branches().seconds > 0
    assert result.complete_trials + result.pruned_trials == 8
    assert "RUNNING" in under_way, "one went on while another ended"
    assert {run.data.params["placement.accelerator"] for run in trial_runs(parent)} == {"cpu@steady", "cpu@second"}
    assert all(one.costs["step_seconds"] > 0 for one in result.settings)
    best = min((one for one in result.settings if not one.is_pruned), key=lambda one: one.validation_ne)
    folder = stored_trial_model(tmp_path, best.trial_number)
    assert folder, "the best that came to its end is here, to be a member of the ensemble"
    trial = TrainedModel.model_validate({**read_json(folder / FILE), "directory": folder})
    again = TrainingJob(dataset, trial.spec, trial.hyperparameters, execution_of(at("here")), trial.schedule)
    kept, expected = load_model(folder).state_dict(), train(again).model.state_dict()
    assert all(torch.equal(kept[name], expected[name]) for name in expected)


def trial_runs(parent: str) -> list[MlflowRun]:
    client = MlflowClient(tracking_uri())
    experiment = client.get_run(parent).info.experiment_id
    return list(client.search_runs([experiment], f"tags.mlflow.parentRunId = '{parent}'"))


def test_when_its_node_dies_the_training_goes_on_elsewhere_from_its_checkpoint(
    ray_cluster: Any, ray_node: dict[str, Any], address: str, dataset: Dataset, tmp_path: Path
) -> None:
    doomed = ray_cluster.add_node(num_cpus=1, **ray_node, resources={"training": 1, "doomed": 1}, node_name="doomed")
    ray_cluster.wait_for_nodes()
    epochs: list[int] = []

    def kill_node(report: EpochReport) -> None:
        epochs.append(report.epoch)
        if report.epoch == 2 and len(epochs) == 2:
            ray_cluster.remove_node(doomed, allow_graceful=False)

    with open_cluster(address, "training") as cluster:
        assert set(cluster.nodes) == {"steady", "doomed"}
        cluster.prefer([Choice(at("doomed"), 1.0), Choice(at("steady"), 1.0)])
        result = run(cluster, dataset, "doomed", tmp_path / "checkpoint", on_epoch=kill_node, checkpoint_steps=1)
        assert len(cluster.moves) == 1
        assert "doomed" in cluster.moves[0]
        assert cluster.moves[0].endswith("It continues at cpu@steady x1 fp32 b128.")
        assert_same_weights(result, run_here(dataset))
        assert [report.epoch for report in result.history] == list(range(1, EPOCHS + 1))
        assert run(cluster, dataset, "doomed").validation == result.validation, "a dead node is not asked again"


def test_a_process_that_dies_again_and_again_is_given_up(
    cluster: Cluster, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def lose(slots: Sequence[WorkerSlot], *_: Any, **__: Any) -> TrainResult:
        attempts.extend(slot.node.name for slot in slots)
        raise NodeLostError("gone")

    monkeypatch.setattr("shunter.extensions.distributed.executors.ray.cluster.train_on_nodes", lose)
    with pytest.raises(TrainingError, match="gone"):
        run(cluster, dataset, "steady", tmp_path / "checkpoint")
    assert attempts == ["steady"] * 4


def test_a_node_tells_what_was_measured_there(cluster: Cluster, node_home: Path) -> None:
    (path,) = node_home.glob("profiles/*.json")
    kept = read_checked(path, ProfileFile.model_validate_json).profiles
    told = cluster.profiles()
    assert [profile.accelerator.name for profile in told] == [f"{one.accelerator.name}@steady" for one in kept]
    assert [profile.copy_bytes_per_second for profile in told] == [one.copy_bytes_per_second for one in kept]


class Other:
    """Another program on a node."""

    def there(self) -> None:
        """Say that it has its core."""


@pytest.fixture
def other_on_second(second: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The second node is measured as ten times as fast, and another program holds it until a second training begins."""
    import ray

    taken: Any = ray.remote(num_cpus=1)(Other)
    other: Any = taken.options(**placed(cluster.nodes["second"].node_id)).remote()
    ray.get(other.there.remote())
    begun = 0

    def give_way(record: logging.LogRecord) -> bool:
        nonlocal begun
        begun += "the training begins at" in record.getMessage()
        if begun == 2:
            ray.kill(other)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not free_resources()[cluster.nodes["second"].node_id].get("CPU"):
                assert time.monotonic() < deadline, "Ray does not give the node back"
                time.sleep(0.02)
        return True

    def measured(self: Cluster, data: Dataset, spec: Any, placement: Placement, steps: int) -> Measurement | None:
        found = measure(self, data, spec, placement, steps)
        if found is None or placement.node != "second":
            return found
        return found.model_copy(update={"step_seconds": found.step_seconds / 10, "step_seconds_interval": None})

    measure = Cluster.measure
    monkeypatch.setattr(Cluster, "measure", measured)
    monkeypatch.setattr("shunter.engine.executors.move_monitor.LOOK_SECONDS", 0.0)
    logger = logging.getLogger("shunter.extensions.distributed.executors.ray.cluster")
    logger.addFilter(give_way)
    yield
    logger.removeFilter(give_way)


def test_a_training_is_ordered_on_the_cluster_moves_to_the_better_node_and_is_tracked_here(
    address: str, other_on_second: None, tracking_root: Path, shunter_home: Path, prefect_server: str
) -> None:
    """`shunter train --cluster` as a whole: begun where there is room, moved when there is better, registered."""
    from shunter.flows.train import train as train_flow
    from shunter.tracking.registry.models import load_champion

    request = TrainRequest(
        data="synthetic:4000",
        trials=1,
        max_epochs=300,  # so much is left of any training that it moves, however slowly it has started
        ensemble_size=1,
        set=["patience=20"],
        cluster=address,
        cluster_resource="training",
    )
    summary = train_flow(request)
    placement = summary.decision.placement
    assert placement.node == "second"
    assert {row.candidate.placement.node for row in summary.decision.table} == {"second", "steady"}
    assert {row.candidate.placement.threads for row in summary.decision.table} == {1}, "Ray gives a core of each"
    assert summary.decision.chosen.candidate.prediction.step_seconds_source == "measured"
    run = MlflowClient(tracking_uri()).get_run(summary.run_id)
    steady = placement.label.replace("second", "steady")
    assert run.data.tags["cluster.moves"] == (
        f"{placement.label} is in use: the training begins at {steady}. "
        f"{placement.label} is in use: the training begins at {steady}. "
        f"{placement.label} is free: the training at {steady} continues there."
    )
    assert run.data.params["placement.accelerator"] == placement.accelerator
    assert summary.energy.joules is None or "nodes: " in summary.energy.source
    assert load_champion(request.register_as) is not None
    assert not (shunter_home / "profiles").exists(), "this machine was not measured"
