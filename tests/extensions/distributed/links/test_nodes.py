"""Discovery on a real Ray cluster of two nodes, both of them on this machine."""

from collections.abc import Iterator

import pytest

from shunter.errors import HardwareError
from shunter.extensions.distributed.links.nodes import cluster_nodes, connected
from shunter.hardware.devices.discovery import local_accelerators

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a cluster of two nodes."""
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80 * 2**20})
    made.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    made.wait_for_nodes()
    yield str(made.address)
    made.shutdown()
    patch.undo()


def test_every_node_tells_what_it_has(cluster: str) -> None:
    nodes = cluster_nodes(cluster)
    assert len({node.node_id for node in nodes}) == 2
    for node in nodes:
        assert [accelerator.model_copy(update={"memory_bytes": 0}) for accelerator in node.accelerators] == [
            accelerator.model_copy(update={"memory_bytes": 0}) for accelerator in local_accelerators()
        ]


def test_where_no_cluster_answers_the_error_says_what_to_do() -> None:
    with pytest.raises(HardwareError, match="--head"):
        cluster_nodes("127.0.0.1:1")


@pytest.mark.parametrize("address", ["local", ""])
def test_no_ray_that_others_could_reach_is_started(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def start(**_: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(ray, "init", start)
    with pytest.raises(HardwareError, match="does not start one"), connected(address):
        pass
