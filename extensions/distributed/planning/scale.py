"""Simulated step time by the number of hosts, for several ways to divide a model.

The number of samples of a device does not depend on the number of hosts. Tables are divided evenly, except for
`searched`:

    flat        one all-to-all of all devices brings each device the vectors of its samples
    by host     the same vectors within each host first, then one message to the peer on each other host (SPTT of DMT,
                arXiv 2403.00877, section 3)
    compressed  as `by host`, with the vectors of a host's tower compressed before they are sent to other hosts
    towers      as `compressed`, with the counted layers of a model that has such towers
    searched    the best initial plan of the search, with the actual tables: some copied, some whole, some by row
    fsdp        dense weights divided over all devices and gathered for the forward and the backward pass, tables flat
    hybrid      dense weights divided within each host, gradients added up over hosts (HSDP of DHEN, arXiv 2203.11014)

Computation and messages do not overlap, with two exceptions. Dense weights are gathered layer by layer during the
computation of the layer before. Parts of gradients are reduced over hosts during the following layers. The effect of
compression on quality is not simulated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shunter.extensions.distributed.plan_request import DevicesRequest
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.demand import FLOAT_BYTES, ModelDemand
from shunter.extensions.distributed.planning.device_costs import RowCosts
from shunter.extensions.distributed.planning.machine import Channel, Machine, machine_of
from shunter.extensions.distributed.planning.search import Search
from shunter.extensions.distributed.planning.step import StepModel
from shunter.frozen import Frozen
from shunter.hardware.cost.step_model import StepModel as DeviceStep
from shunter.hardware.cost.step_model import message_share
from shunter.hardware.types import HardwareProfile, Placement, Precision, Workload

HALF = 0.5  # as large are weights and gradients of layers that train in bf16
WAYS = ("flat", "by host", "compressed", "towers", "searched", "fsdp", "hybrid")
MESSAGE_SECONDS = 10e-6  # to start a message to another device or host; assumed
FORWARD, BACKWARD = 0.3, 0.6  # of the layers' seconds; the rest is the optimiser's


@dataclass(frozen=True)
class Links:
    """Links of a device (channel within its host, share of the host's network), and numbers of hosts and devices."""

    within: Channel
    across_bytes_per_second: float
    hosts: int
    per_host: int

    @property
    def devices(self) -> int:
        """Number of devices of all hosts."""
        return self.hosts * self.per_host

    def crossing(self, data: float) -> float:
        """Return how many of `data` bytes go to other hosts if each device gets an equal part."""
        return data * (self.hosts - 1) / self.hosts

    def flat(self, data: float) -> float:
        """Return the seconds of one all-to-all; both links are busy at the same time."""
        across = self.crossing(data) / self.across_bytes_per_second
        within = data * (self.per_host - 1) / self.devices / self.within.bytes_per_second
        messages = (self.devices - self.per_host) if self.hosts > 1 else 0
        return max(across + messages * MESSAGE_SECONDS, within + (self.per_host - 1) * MESSAGE_SECONDS)

    def by_host(self, data: float, compression: float) -> float:
        """Return the seconds to exchange all vectors within the host, then the compressed vectors between peers."""
        within = data * (self.per_host - 1) / self.per_host / self.within.bytes_per_second
        across = self.crossing(data) / compression / self.across_bytes_per_second
        return within + across + (self.per_host - 1 + self.hosts - 1) * MESSAGE_SECONDS

    def all_reduce(self, data: float) -> float:
        """Return the seconds of an all-reduce: within the host, then of each device's part across hosts."""
        within = message_share("all_reduce", self.per_host) * data / self.within.bytes_per_second
        started = 2 * (self.per_host - 1) * MESSAGE_SECONDS
        return (within if self.per_host > 1 else 0.0) + started + self.all_reduce_parts(data)

    def all_reduce_parts(self, data: float) -> float:
        """Return the seconds of an all-reduce over the hosts, for each device's part of a host's data."""
        if self.hosts == 1:
            return 0.0
        started = 2 * (self.hosts - 1) * MESSAGE_SECONDS
        return message_share("all_reduce", self.hosts) * data / self.per_host / self.across_bytes_per_second + started

    def gather_all(self, data: float) -> float:
        """Return the seconds of an all-gather over all devices, with one ring for each device of a host."""
        slowest = min(self.within.bytes_per_second, self.across_bytes_per_second * self.per_host)
        rate = slowest if self.hosts > 1 else self.within.bytes_per_second
        return data * (self.devices - 1) / self.devices / rate + (self.devices - 1) * MESSAGE_SECONDS

    def fully_sharded(self, dense: float, weights: float, pieces: int) -> float:
        """Return the seconds of forward and backward pass if weights are gathered piece by piece (fully sharded).

        Gradients are scattered over the same links. `dense` are the seconds of computing, `weights` bytes.
        """
        gathered = self.gather_all(weights / pieces)
        return _in_pieces(dense, pieces, gathered, 2 * gathered, gathered)

    def hybrid_sharded(self, dense: float, weights: float, pieces: int) -> float:
        """Return the seconds of forward and backward pass if weights are sharded within each host (hybrid sharded).

        Gradients of a piece are reduced over the hosts during the next piece. Arguments: see `fully_sharded`.
        """
        share = (self.per_host - 1) / self.per_host
        gathered = weights / pieces * share / self.within.bytes_per_second + (self.per_host - 1) * MESSAGE_SECONDS
        summed = self.all_reduce_parts(weights / pieces)
        return _in_pieces(dense, pieces, gathered, max(2 * gathered, summed), gathered + summed)


def _in_pieces(dense: float, pieces: int, first: float, beside: float, last: float) -> float:
    """Return the seconds of forward and backward pass if weights are gathered piece by piece.

    `first` are the seconds to gather a piece, which are not hidden for the first piece of a pass; `beside` those of the
    messages during the computation of a piece of the backward pass; `last` those after the last piece.
    """
    ahead, back = FORWARD * dense / pieces, BACKWARD * dense / pieces
    forward = first + (pieces - 1) * max(ahead, first) + ahead
    backward = first + (pieces - 1) * max(back, beside) + back + last
    return forward + backward + (1 - FORWARD - BACKWARD) * dense


class ScalePoint(Frozen):
    """Point of the curves: one number of hosts.

    Attributes:
        step_seconds: Simulated step of each way. `searched` is absent if not requested; `towers` is absent on one
            host, or for a model without towers.
        exchange_share: Share of the flat step that the exchange of vectors takes.
        crossing_bytes: Bytes that a device sends to other hosts in a step, of the vectors, flat and compressed.
    """

    hosts: int
    devices: int
    step_seconds: dict[str, float]
    exchange_share: float
    crossing_bytes: dict[str, float]

    def speedup(self, way: str) -> float:
        """Return the training speed of one way to divide the model, relative to `flat`."""
        return self.step_seconds["flat"] / self.step_seconds[way]


class ScaleReport(Frozen):
    """Curves of one model family on one data set, over ascending numbers of hosts.

    Attributes:
        batch_per_device: Samples of each device in a step.
        compression: Compression factor of the towers.
        precision: Precision of the dense layers.
        told: Source of the figures, as a sentence.
    """

    model: str
    data: str
    batch_per_device: int
    compression: float
    precision: Precision = "fp32"
    points: tuple[ScalePoint, ...]
    told: str

    def efficiency(self, point: ScalePoint, way: str) -> float:
        """Return a way's speed per device, relative to its speed on the fewest hosts.

        A way that is not simulated on the fewest hosts is compared with `flat` there.
        """
        first = self.points[0].step_seconds
        return first.get(way, first["flat"]) / point.step_seconds[way]


def scale(
    demand: ModelDemand,
    place: DevicesRequest,
    profiles: Sequence[HardwareProfile],
    hosts: Sequence[int],
    *,
    batch_per_device: int,
    compression: float,
    precision: Precision = "fp32",
    with_towers: Callable[[int], Workload | None] | None = None,
    most_searched: int = 16,
) -> ScaleReport:
    """Simulate a model on ascending numbers of hosts, with the accelerator, devices per host and network of `place`.

    Towers compress their vectors by the factor `compression`. The precision is that of the dense layers, and of the
    messages with their weights and gradients. `with_towers` returns the work of a sample in the layers of a model with
    a number of towers. Plans of the tables are searched for at most `most_searched` hosts.

    Raises:
        RequestError: The accelerator is unknown.
    """
    per_host = place.devices_per_host or 8
    points, told = [], ""
    for count in hosts:
        machine = machine_of(
            place.model_copy(update={"devices": count * per_host, "devices_per_host": per_host}), profiles
        )
        told = machine.told
        links = Links(
            within=machine.within["all_to_all"],
            across_bytes_per_second=place.network_gbit * 1e9 / 8 / machine.per_host,
            hosts=machine.hosts,
            per_host=machine.per_host,
        )
        towers = None if with_towers is None or count == 1 else with_towers(count)
        points.append(
            _point(
                demand,
                machine,
                links,
                towers,
                batch=batch_per_device,
                compression=compression,
                precision=precision,
                searches=count <= most_searched,
            )
        )
    return ScaleReport(
        model=demand.family,
        data=demand.data,
        batch_per_device=batch_per_device,
        compression=compression,
        precision=precision,
        points=tuple(points),
        told=told,
    )


def _point(
    demand: ModelDemand,
    machine: Machine,
    links: Links,
    towers: Workload | None,
    *,
    batch: int,
    compression: float,
    precision: Precision,
    searches: bool,
) -> ScalePoint:
    profile = machine.devices[0].profile
    placement = Placement(accelerator=profile.accelerator.name, threads=1, precision=precision, batch_size=batch)

    def dense_seconds(workload: Workload) -> float:
        alone = workload.model_copy(update={"lookups_per_sample": 0.0, "tables": 0, "input_bytes_per_sample": 0.0})
        parts = DeviceStep(profile).parts(alone, placement)
        return parts.dense + parts.overhead

    vectors = float(batch * FLOAT_BYTES * sum(table.bags * table.width for table in demand.tables))
    share = HALF if precision == "bf16" else 1.0
    weights = share * demand.workload.dense_parameter_bytes
    dense, rows = dense_seconds(demand.workload), _rows_seconds(demand, machine, batch)
    pieces = max(1, len(demand.layers))
    flat = dense + rows + links.all_reduce(weights)
    exchange, compressed = 2 * links.flat(vectors), 2 * links.by_host(vectors, compression)
    steps = {
        "flat": flat + exchange,
        "by host": flat + 2 * links.by_host(vectors, 1.0),
        "compressed": flat + compressed,
        "fsdp": rows + exchange + links.fully_sharded(dense, weights, pieces),
        "hybrid": rows + exchange + links.hybrid_sharded(dense, weights, pieces),
    }
    if towers is not None:
        summed = links.all_reduce(share * towers.dense_parameter_bytes)
        steps["towers"] = dense_seconds(towers) + rows + summed + compressed
    if searches:
        model = StepModel(TableCosts(machine, demand, batch * len(machine.devices)))
        steps["searched"] = Search(model, "exact").run(0.0).step_seconds
    return ScalePoint(
        hosts=machine.hosts,
        devices=len(machine.devices),
        step_seconds=steps,
        exchange_share=exchange / steps["flat"],
        crossing_bytes={
            "flat": 2 * links.crossing(vectors),
            "compressed": 2 * links.crossing(vectors) / compression,
        },
    )


def _rows_seconds(demand: ModelDemand, machine: Machine, batch: int) -> float:
    """Return the seconds of lookup and update per device, with tables and lookups divided evenly."""
    profile, seconds = machine.devices[0].profile, 0.0
    for table in demand.tables:
        costs = RowCosts.of(profile, 1.0, table.width * FLOAT_BYTES)
        each = costs.lookup_seconds + table.width * FLOAT_BYTES * costs.byte_seconds
        seconds += batch * (table.bags * costs.bag_seconds + table.ids_per_sample * each)
    return seconds
