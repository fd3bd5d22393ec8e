"""Nodes of a Ray cluster and their accelerators.

Shunter must be installed on every node, in the same version. Ray is imported lazily, because its import takes a second.
"""

import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import Field

from shunter.errors import HardwareError, first_line
from shunter.frozen import Frozen
from shunter.hardware.devices.discovery import local_accelerators
from shunter.hardware.types import Accelerator

log = logging.getLogger(__name__)

# A node that must first start a Python process answers within seconds; a dead node never answers.
ANSWER_SECONDS = 120.0
CONNECT_SECONDS = 10.0
STARTS_ONE = {"", "local"}  # addresses for which Ray starts a new cluster


class ClusterNode(Frozen):
    """Node of a Ray cluster."""

    node_id: str
    name: str = Field(
        description="Name given by `ray start --node-name`, or the node's address; unique in the cluster."
    )
    address: str
    host: str = Field(description="Host name of the machine, which two nodes may share.")
    accelerators: tuple[Accelerator, ...]
    resources: dict[str, float] = Field(
        default={}, description="Resources that Ray can assign on the node, labels included."
    )


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Connect to a Ray cluster while the block runs; an existing connection is used and stays open.

    Args:
        address: Address `host:port` of the head node, `auto` for the cluster that this machine is part of.

    Raises:
        HardwareError: no cluster answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if ray.is_initialized():
        yield
        return
    _check_answers(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_cluster(address, error) from error
    try:
        yield
    finally:
        ray.shutdown()


def cluster_nodes(address: str, resource: str | None = None) -> list[ClusterNode]:
    """Return the cluster's nodes with their accelerators, the head node first; nodes that do not answer are left out.

    Args:
        address: Address, as in `connected`.
        resource: Resource that a node must have been started with (`ray start --resources`).

    Raises:
        HardwareError: no cluster answers, no node answers, or no node has the resource.
    """
    with connected(address):
        import ray

        records = alive_nodes(resource)
        if not records:
            known = sorted({name for node in alive_nodes() for name in node["Resources"] if ":" not in name})
            raise HardwareError(
                f"No node of the Ray cluster at {address} has the resource {resource!r}: use one of "
                f"{', '.join(known)}, or start a node with it (`ray start --resources`)."
            )
        remote = ray.remote(num_cpus=0)(local_accelerators)
        answers = gather([(node, remote.options(**placed(node["NodeID"])).remote()) for node in records])
        if not answers:
            raise HardwareError(
                f"No node of the Ray cluster at {address} answers: check `ray status` on the head node."
            )
        return [node_of(node, accelerators) for node, accelerators in answers]


def _check_answers(address: str) -> None:
    """Raise if the address does not accept a TCP connection; Ray would retry for minutes, or start an open cluster."""
    if address.strip() in STARTS_ONE:
        raise HardwareError(
            f"No Ray cluster runs at {address!r}, and Shunter does not start one, because it would listen "
            "on every network: leave out --cluster to train on this machine, or give the address that `ray "
            "start --head` prints."
        )
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> HardwareError:
    return HardwareError(
        f"No Ray cluster answers at {address} ({first_line(error)}): give the address that `ray start --head` prints."
    )


def gather(pending: Sequence[tuple[dict[str, Any], Any]]) -> list[tuple[dict[str, Any], Any]]:
    """Wait at most `ANSWER_SECONDS` for the nodes' pending results; return pairs of node and result.

    Nodes without a result are logged and left out.
    """
    import ray
    from ray.exceptions import RayError

    answers = []
    deadline = time.monotonic() + ANSWER_SECONDS
    for node, reference in pending:
        try:
            answer = ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
        except RayError as error:
            log.warning("Node %s of the cluster is not used (%s).", node["NodeManagerAddress"], first_line(error))
            continue
        answers.append((node, answer))
    return answers


def alive_nodes(resource: str | None = None) -> list[dict[str, Any]]:
    """Return Ray's records of the live nodes, or of those that were started with a resource, the head node first."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"] and (resource is None or node["Resources"].get(resource))]
    return sorted(alive, key=lambda node: ("node:__internal_head__" not in node["Resources"], node["NodeID"]))


def free_resources() -> dict[str, dict[str, float]]:
    """Return the resources that are currently free in Ray, by node id."""
    from ray._private.state import available_resources_per_node  # no public API of Ray gives them by node

    return available_resources_per_node()


def placed(node_id: str) -> dict[str, Any]:
    """Return the options that bind a Ray task or actor to one node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)}


def node_of(node: dict[str, Any], accelerators: Sequence[Accelerator]) -> ClusterNode:
    """Convert Ray's record of a node to a `ClusterNode` with its accelerators."""
    name = node.get("NodeName") or node["NodeManagerAddress"]
    is_shared = sum((other.get("NodeName") or other["NodeManagerAddress"]) == name for other in alive_nodes()) > 1
    return ClusterNode(
        node_id=node["NodeID"],
        name=f"{name}-{node['NodeID'][:6]}" if is_shared else name,
        address=node["NodeManagerAddress"],
        host=node["NodeManagerHostname"],
        accelerators=tuple(accelerators),
        resources=node["Resources"],
    )
