"""Nodes of a Ray cluster read a log as one process does; which of them take part, and what a dead one leaves."""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import HardwareError
from shunter.extensions.distributed.links.nodes import alive_nodes, connected, node_of
from shunter.extensions.distributed.node_readers import ExpectedFiles, Nodes
from shunter.ingestion.build import build
from shunter.ingestion.progress import READING, Progress
from shunter.ingestion.schema import Options
from shunter.ingestion.sources.criteo import CriteoSource, criteo_schema
from shunter.ingestion.sources.synthetic import SyntheticSource
from shunter.ingestion.workers import LONG_BYTES, Work, crew_of
from shunter.requests import ClusterRequest
from tests.ingestion.criteo_files import write_criteo


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / "log.tsv"
    write_criteo(path, SyntheticSource(20_000))
    path.write_bytes(path.read_bytes().replace(b"\n0\t", b"\nx\t", 3))
    return path


@pytest.fixture
def seen(log_file: Path) -> ExpectedFiles:
    mark = log_file.with_name("mark")
    mark.write_text("mark")
    stamp = log_file.stat()
    return ExpectedFiles({log_file: (stamp.st_size, stamp.st_mtime_ns)}, mark, "mark", log_file.parent)


def test_a_node_that_sees_log_and_cache_takes_part(seen: ExpectedFiles) -> None:
    assert seen.fault() is None


def test_a_node_without_the_log_or_with_another_one_does_not(seen: ExpectedFiles, log_file: Path) -> None:
    with log_file.open("ab") as stream:
        stream.write(b"\n")
    assert seen.fault() == f"sees {log_file} with another size or modification time"
    log_file.unlink()
    assert seen.fault() == f"does not see {log_file} (No such file or directory)"


def test_a_node_without_the_cache_or_with_another_one_does_not(seen: ExpectedFiles, log_file: Path) -> None:
    seen.mark.write_text("another")
    assert seen.fault() == f"sees another folder at {log_file.parent}"
    seen.mark.unlink()
    assert seen.fault() == f"does not see the cache {log_file.parent} (No such file or directory)"


def test_only_a_long_log_asks_the_cluster(log_file: Path) -> None:
    source = CriteoSource("log", criteo_schema(Options()), (log_file,))
    nobody = ClusterRequest(cluster="127.0.0.1:1")
    with crew_of(nobody, source, log_file.parent) as crew:
        assert crew is None
    os.truncate(log_file, LONG_BYTES)  # takes no room
    with pytest.raises(HardwareError, match="No Ray cluster answers"), crew_of(nobody, source, log_file.parent):
        pass


@pytest.fixture
def ray_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray_node: dict[str, Any]) -> Iterator[Any]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "home"))
    from ray.cluster_utils import Cluster as RayCluster

    made = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0, **ray_node})
    yield made
    made.shutdown()


def contents(source: CriteoSource, directory: Path, work: Work) -> dict[str, bytes]:
    """Every file of a data set; without where it lies."""
    directory.mkdir()
    build(source, directory, "x", 0, 1.0, work=work)
    files = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return files | {"dataset.json": files["dataset.json"].replace(str(directory).encode(), b"")}


@pytest.mark.slow
def test_nodes_give_the_arrays_of_one_process_though_one_dies(
    ray_cluster: Any, ray_node: dict[str, Any], log_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steady, doomed = (ray_cluster.add_node(num_cpus=1, **ray_node, node_name=name) for name in ("steady", "doomed"))
    ray_cluster.wait_for_nodes()
    source, unit_bytes, told = CriteoSource("log", criteo_schema(Options()), (log_file,)), 300_000, list[Progress]()

    def kill_one(progress: Progress) -> None:
        told.append(progress)
        if len(told) == 2:
            ray_cluster.remove_node(doomed, allow_graceful=False)

    with caplog.at_level(logging.WARNING), connected(str(ray_cluster.address)):
        nodes = [node_of(node, ()) for node in alive_nodes()]
        # What a process is, another is not.
        with Nodes(nodes, (Path("/proc/self/stat"),), tmp_path) as blind:
            assert blind.count == 0
        faults = [record.getMessage() for record in caplog.records]
        assert sorted(fault.split()[1] for fault in faults) == ["doomed", "steady"]
        assert all(fault.endswith("sees /proc/self/stat with another size or modification time.") for fault in faults)
        caplog.clear()
        with Nodes(nodes, source.paths, tmp_path) as crew:
            assert crew.count == 2
            there = contents(source, tmp_path / "there", Work(crew, unit_bytes, kill_one))
            ray_cluster.remove_node(steady, allow_graceful=False)
            deadline = time.monotonic() + 60
            while crew.call(os.getpid, max, 0) != os.getpid():  # its process may outlive a node by a moment
                assert time.monotonic() < deadline, "without nodes the work is done here"
                time.sleep(0.1)

    assert "on node doomed was lost" in "".join(record.getMessage() for record in caplog.records)
    assert sum(progress.stage == READING for progress in told) > 10
    assert there == contents(source, tmp_path / "here", Work(unit_bytes=unit_bytes))
    assert not list(tmp_path.glob("*.seen"))
