"""Executors beyond this process, by name: a group of processes, the nodes of a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager

from shunter.engine.executors.role import Cluster
from shunter.registry import Entry, Registry, check_package
from shunter.requests import ClusterRequest

# `process_group` is a function of the placement that returns an `Executor`; `cluster` one of the address and the
# resource that returns a context manager of a `Cluster`.
EXECUTORS = Registry(
    "executor",
    {
        "process_group": Entry(target="shunter.extensions.distributed.executors.process_group:group_of_processes"),
        "cluster": Entry(target="shunter.extensions.distributed.executors.ray.cluster:open_cluster"),
    },
    group="shunter.executors",
)


@contextmanager
def requested_cluster(request: ClusterRequest) -> Iterator[Cluster | None]:
    """Connect to the cluster of a request for the length of the block; yield None if the request names no cluster.

    Raises:
        HardwareError: No cluster answers, or none of its nodes has the requested resource.
        MissingPackageError: Ray is not installed.
        MissingExtensionError: No installed extension can use a cluster.
    """
    if request.cluster is None:
        yield None
        return
    check_package("ray", "Ray", "cluster")
    with EXECUTORS.load("cluster")(request.cluster, request.cluster_resource) as cluster:
        yield cluster
