"""What each machine of a Ray cluster draws while work runs on it.

Shunter must be installed on every node, in the same version. Ray is imported where it is used: it takes a second.
"""

import time
from types import TracebackType
from typing import Any, Self

from hardware.devices.discovery import local_accelerators
from hardware.devices.nodes import ClusterNode, alive_nodes, gather, node_of, placed
from hardware.meters.meter import EnergyMeter, measure_energy
from hardware.meters.streams import MergedPower, PowerStream, merge_streams
from hardware.types import Accelerator, EnergyReading
from shunter.errors import HardwareError
from shunter.frozen import Frozen


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


class ClusterMeter:
    """Energy of every machine of a cluster while a block runs, whoever works on them.

    Example:
        with connected("auto"), ClusterMeter() as meter:
            work()
        for reading in meter.readings: print(reading.node.address, reading.reading.joules)
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
        alive = {node["NodeID"] for node, _ in gather(started)}
        self._actors = [(node, handle) for node, handle in self._actors if node["NodeID"] in alive]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take the final readings, also when the work failed."""
        import ray

        stopped = gather([(node, handle.stop.remote()) for node, handle in self._actors])
        self._readings = [
            NodeReading(node=node_of(node, accelerators), started_at=started_at, reading=reading)
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
        unknown = [node.node.address for node in self._readings if node.stream is None]
        if unknown or not self._readings:
            names = ", ".join(unknown) or "every node"
            raise HardwareError(f"The energy of the cluster is unknown, since nothing counts that of {names}.")
        return merge_streams([stream for node in self._readings if (stream := node.stream) is not None], "cluster")


class _NodeMeter:
    """Runs on one node: a meter of all that it has."""

    def __init__(self) -> None:
        self._accelerators: list[Accelerator] = []
        self._meter: EnergyMeter | None = None
        self._started_at = 0.0

    def start(self) -> bool:
        """Find the accelerators and begin to count."""
        self._accelerators = local_accelerators()
        self._meter = measure_energy(
            *(accelerator.name for accelerator in self._accelerators), scope="node"
        ).__enter__()
        self._started_at = time.time()
        return True

    def stop(self) -> tuple[list[Accelerator], float, EnergyReading]:
        """Stop counting."""
        assert self._meter is not None, "start first"
        self._meter.__exit__(None, None, None)
        return self._accelerators, self._started_at, self._meter.reading
