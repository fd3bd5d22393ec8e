"""The machines of a Ray cluster: what each of them has, and what each of them draws while work runs on it.

Shunter must be installed on every node, in the same version. Ray is imported where it is used: it takes a second.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from pydantic import Field

from hardware.devices.discovery import local_accelerators
from hardware.meters.meter import EnergyMeter, measure_energy
from hardware.meters.source import first_line
from hardware.meters.streams import MergedPower, PowerStream, merge_streams
from hardware.types import Accelerator, EnergyReading
from shunter.errors import HardwareError
from shunter.frozen import Frozen

log = logging.getLogger(__name__)

# A node that has to start a Python process first answers in seconds, a dead one never.
ANSWER_SECONDS = 120.0
CONNECT_SECONDS = 10.0


class ClusterNode(Frozen):
    """One machine of a cluster."""

    node_id: str
    name: str = Field(description="As given to `ray start --node-name`, else its address; unique in the cluster.")
    address: str
    host: str = Field(description="Name of the machine, which two nodes may share.")
    accelerators: tuple[Accelerator, ...]
    resources: dict[str, float] = Field(default={}, description="What Ray may give out on it, labels included.")


class NodeReading(Frozen):
    """Energy of one machine of a cluster."""

    node: ClusterNode
    started_at: float
    reading: EnergyReading

    @property
    def stream(self) -> PowerStream | None:
        """Power over the time of day; None where nothing could count it."""
        if not self.reading.power:
            return None
        return PowerStream.of_reading(self.node.address, self.started_at, self.reading)


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Be connected to a Ray cluster for the length of the block; a connection that is there already is used and kept.

    Args:
        address: `host:port` of the head node, `auto` for the cluster that this machine is part of.

    Raises:
        HardwareError: no cluster answers there.
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
    """Every machine of the cluster with its accelerators, the head node first; one that does not answer is left out.

    Args:
        address: as in `connected`.
        resource: only nodes that were started with this resource (`ray start --resources`).

    Raises:
        HardwareError: no cluster answers, none of its nodes does, or none has the resource.
    """
    with connected(address):
        records = [node for node in alive_nodes() if resource is None or node["Resources"].get(resource)]
        if not records:
            known = sorted({name for node in alive_nodes() for name in node["Resources"] if ":" not in name})
            raise HardwareError(
                f"No node of the Ray cluster at {address} has the resource {resource!r}: use one of "
                f"{', '.join(known)}, or start a node with it (`ray start --resources`)."
            )
        answers = _on_every_node(local_accelerators, records)
        if not answers:
            raise HardwareError(f"No node of the Ray cluster at {address} answers: see `ray status` there.")
        return [_node(node, accelerators) for node, accelerators in answers]


class ClusterMeter:
    """Energy of every machine of a cluster while a block runs, whoever works on them.

    Example:
        with connected("auto"), ClusterMeter() as meter:
            work()
        for one in meter.readings: print(one.node.address, one.reading.joules)
        print(meter.merged().total.joules)

    Needs a connection (`connected`). A node that dies meanwhile is missing from the readings and named in the log.
    """

    def __init__(self) -> None:
        self._actors: list[tuple[dict[str, Any], Any]] = []
        self._readings: list[NodeReading] = []

    def __enter__(self) -> Self:
        """Start a meter on every node."""
        import ray

        actor = ray.remote(num_cpus=0)(_NodeMeter)
        self._readings = []
        self._actors = [(node, actor.options(**placed(node["NodeID"])).remote()) for node in alive_nodes()]
        started = [(node, handle.start.remote()) for node, handle in self._actors]
        alive = {node["NodeID"] for node, _ in _gather(started)}
        self._actors = [(node, handle) for node, handle in self._actors if node["NodeID"] in alive]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take the final readings, also when the work failed."""
        import ray

        stopped = _gather([(node, handle.stop.remote()) for node, handle in self._actors])
        self._readings = [
            NodeReading(node=_node(node, accelerators), started_at=started_at, reading=reading)
            for node, (accelerators, started_at, reading) in stopped
        ]
        for _, handle in self._actors:
            ray.kill(handle)

    @property
    def readings(self) -> list[NodeReading]:
        """One for each node that was there from the start to the end."""
        return self._readings

    def merged(self) -> MergedPower:
        """Power of all nodes together, by time of day.

        Raises:
            HardwareError: nothing could count the energy of one of the nodes, so that the sum is unknown.
        """
        unknown = [one.node.address for one in self._readings if one.stream is None]
        if unknown or not self._readings:
            names = ", ".join(unknown) or "every node"
            raise HardwareError(f"The energy of the cluster is unknown, since nothing counts that of {names}.")
        return merge_streams([stream for one in self._readings if (stream := one.stream) is not None], "cluster")


def _check_answers(address: str) -> None:
    """Knock at the door first: where nobody is, Ray tries for minutes."""
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


class _NodeMeter:
    """Runs on one node: a meter of all that it has."""

    def __init__(self) -> None:
        self._accelerators: list[Accelerator] = []
        self._meter: EnergyMeter | None = None
        self._started_at = 0.0

    def start(self) -> bool:
        """Find the accelerators and begin to count."""
        self._accelerators = local_accelerators()
        self._meter = measure_energy(*(one.name for one in self._accelerators), scope="node").__enter__()
        self._started_at = time.time()
        return True

    def stop(self) -> tuple[list[Accelerator], float, EnergyReading]:
        """Stop counting."""
        assert self._meter is not None, "start first"
        self._meter.__exit__(None, None, None)
        return self._accelerators, self._started_at, self._meter.reading


def _on_every_node(work: Callable[[], Any], nodes: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], Any]]:
    """What `work` returns on each of the nodes that answers."""
    import ray

    remote = ray.remote(num_cpus=0)(work)
    return _gather([(node, remote.options(**placed(node["NodeID"])).remote()) for node in nodes])


def _gather(pending: Sequence[tuple[dict[str, Any], Any]]) -> list[tuple[dict[str, Any], Any]]:
    """The answers that come in time; a node without one is named in the log."""
    import ray
    from ray.exceptions import RayError

    answers = []
    deadline = time.monotonic() + ANSWER_SECONDS
    for node, reference in pending:
        try:
            answer = ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
        except RayError as error:
            log.warning("Node %s of the cluster is left out (%s).", node["NodeManagerAddress"], first_line(error))
            continue
        answers.append((node, answer))
    return answers


def alive_nodes() -> list[dict[str, Any]]:
    """Ray's records of the nodes that are up, the head node first."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    return sorted(alive, key=lambda node: ("node:__internal_head__" not in node["Resources"], node["NodeID"]))


def placed(node_id: str) -> dict[str, Any]:
    """Options that bind a task or an actor of Ray to one node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)}


def _node(node: dict[str, Any], accelerators: Sequence[Accelerator]) -> ClusterNode:
    return ClusterNode(
        node_id=node["NodeID"],
        name=_name(node),
        address=node["NodeManagerAddress"],
        host=node["NodeManagerHostname"],
        accelerators=tuple(accelerators),
        resources=node["Resources"],
    )


def _name(node: dict[str, Any]) -> str:
    """The name that the node was given; with the head of its id where another one has the same."""
    name = node.get("NodeName") or node["NodeManagerAddress"]
    shared = sum((other.get("NodeName") or other["NodeManagerAddress"]) == name for other in alive_nodes()) > 1
    return f"{name}-{node['NodeID'][:6]}" if shared else name
