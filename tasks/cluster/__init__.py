"""Step `cluster`: the nodes of a Ray cluster as places to train, measured, chosen among and sent work to."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from hardware.types import HardwareProfile
from tasks.cluster.cluster import Cluster, open_cluster, requested_cluster

__all__ = ["Cluster", "open_cluster", "profile_cluster", "requested_cluster"]


@task(name="profile cluster", cache_policy=NO_CACHE)
def profile_cluster(cluster: Cluster) -> list[HardwareProfile]:
    """Profile the accelerators of every node, each from its own file of the day."""
    return cluster.profiles()
