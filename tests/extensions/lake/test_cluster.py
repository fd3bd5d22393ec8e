"""Nodes of a Ray cluster copy the objects of a log, each its own share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.extensions.distributed.links.nodes import connected
from shunter.extensions.lake.objects import ObjectStore
from shunter.ingestion.sources.addresses import find_objects
from shunter.ingestion.workers import copy_by
from shunter.requests import ClusterRequest

OBJECTS = 20


@pytest.fixture
def ray_cluster(tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch, ray_node: dict[str, Any]) -> Iterator[Any]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "home"))
    from ray.cluster_utils import Cluster as RayCluster

    made = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0, **ray_node})
    for name in ("one", "other"):
        made.add_node(num_cpus=1, **ray_node, node_name=name)
    made.wait_for_nodes()
    yield made
    made.shutdown()


@pytest.mark.slow
def test_nodes_copy_the_objects_of_a_log(
    ray_cluster: Any, s3: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(OBJECTS):
        s3.pipe(f"s3://logs/day={number}/part.csv", f"click,user\n1,{number}\n".encode())
    paths = find_objects("s3://logs/")
    assert paths is not None
    by_this_process = list[Path]()

    def copy(store: ObjectStore, absent: list[Path]) -> None:
        by_this_process.extend(absent)

    monkeypatch.setattr(ObjectStore, "copy", copy)
    address = str(ray_cluster.address)
    with connected(address):
        copy_by(ClusterRequest(cluster=address), paths)
    assert by_this_process == []
    assert sorted(path.read_text() for path in paths) == sorted(f"click,user\n1,{one}\n" for one in range(OBJECTS))

    s3.pipe("s3://logs/day=99/part.csv", b"click,user\n0,1\n")
    more = find_objects("s3://logs/")
    assert more is not None
    copy_by(ClusterRequest(cluster="127.0.0.1:1"), more)  # of a single object, no node is asked
    assert [path.parent.parent.parent.name for path in by_this_process] == ["day=99"]
