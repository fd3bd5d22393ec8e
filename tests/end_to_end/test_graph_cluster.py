"""A graph model through the whole flow on the nodes of a real Ray cluster, one of which is killed while it trains."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.ranking.result import TrainedRanker
from shunter.planner.decide import Decision
from tests.end_to_end.test_graph_flow import request_for
from tests.ray_clusters import ray_cluster_of

pytestmark = pytest.mark.long
PATIENCE_SECONDS = 300  # with a training that never begins; nothing is said of how long one takes


@pytest.fixture
def ray_cluster(
    tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path], ray_node: dict[str, Any]
) -> Iterator[Any]:
    """A head that only orders, and two workers, whose home is not ours: its address, and what kills one by its name."""
    nodes: dict[str, Any] = {name: {"training": 1} for name in ("first", "second")}
    with ray_cluster_of(ray_node, furnish(tmp_path_factory.mktemp("node")), **nodes) as made:
        yield SimpleNamespace(address=str(made.address), kill=lambda name: made.remove_node(made.workers[name], False))


def kill_the_node_that_trains(ray_cluster: Any, home: Path, killed: list[str]) -> None:
    """Wait for the first checkpoint, and kill the node of the decision."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and not any(home.glob("**/rankers/trial-0/checkpoint/*")):
        time.sleep(0.02)
    (trial,) = home.glob("**/rankers/trial-0")
    decision = Decision.model_validate(read_json(trial.parents[1] / "decision.json"))
    killed.append(decision.placement.accelerator.partition("@")[2])
    ray_cluster.kill(killed[0])


def test_a_graph_model_is_trained_on_nodes_one_of_which_is_killed(
    tmp_path: Path, furnished_home: Path, prefect_server: str, ray_cluster: Any
) -> None:
    from mlflow import MlflowClient

    from shunter.flows.train import train

    request = request_for(
        tmp_path,
        model="lightgcn",
        trials=2,
        max_epochs=40,
        cluster=ray_cluster.address,
        cluster_resource="training",
        baselines="ease",
        set=("patience=40",),
    )
    killed: list[str] = []
    watch = threading.Thread(target=kill_the_node_that_trains, args=(ray_cluster, furnished_home, killed))
    watch.start()
    summary = train(request)
    watch.join()
    (dead,) = killed
    (alive,) = {"first", "second"} - {dead}
    assert [one.spec.family for one in summary.tried] == ["lightgcn", "lightgcn"]
    assert {one.placement.accelerator for one in summary.tried} <= {f"cpu@{dead}", f"cpu@{alive}"}
    for one in summary.tried:
        assert [report.epoch for report in one.history] == list(range(1, len(one.history) + 1))
    parent = MlflowClient(summary.tracking_uri).get_run(summary.run_id)
    assert f"on node {dead} was lost" in parent.data.tags["cluster.moves"]
    assert f"It continues at cpu@{alive}" in parent.data.tags["cluster.moves"]
    assert isinstance(summary.result, TrainedRanker)
    assert summary.result.test.ndcg20 > 0.5
    assert "ease" in [one.name for one in summary.baselines]
