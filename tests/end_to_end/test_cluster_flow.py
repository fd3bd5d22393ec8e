"""`shunter train --cluster` as a whole: a node of a real Ray cluster is chosen, trains, and its model is registered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.requests.training import TrainRequest

pytestmark = pytest.mark.slow


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster of one node, with a home of its own."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    home = str(tmp_path / "node")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", home)
        from ray.cluster_utils import Cluster

        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": 80 * 2**20, "resources": {"training": 1}},
        )
        made.wait_for_nodes()
    yield str(made.address)
    made.shutdown()


def test_a_training_is_ordered_on_the_cluster_and_tracked_here(
    address: str, shunter_home: Path, prefect_server: None
) -> None:
    from mlflow import MlflowClient

    from flows.train import train
    from tracking.registry.models import load_champion
    from tracking.store import tracking_uri

    request = TrainRequest(
        data="synthetic:4000",
        trials=1,
        max_epochs=1,
        ensemble_size=1,
        cluster=address,
        cluster_resource="training",
    )
    summary = train(request)
    placement = summary.decision.placement
    assert placement.node is not None
    assert {row.candidate.placement.node for row in summary.decision.table} == {placement.node}
    assert summary.decision.chosen.candidate.prediction.step_seconds_source == "measured"
    run = MlflowClient(tracking_uri()).get_run(summary.run_id)
    assert run.data.tags["cluster.moves"] == "none"
    assert run.data.params["placement.accelerator"] == placement.accelerator
    assert summary.energy.joules is None or "nodes: " in summary.energy.source
    assert load_champion(request.register_as) is not None
    assert not (shunter_home / "profiles").exists(), "this machine was not measured"
    assert (shunter_home.parent / "node" / "profiles").exists(), "the node was"
