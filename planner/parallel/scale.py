"""How a step grows with the number of hosts under several ways to divide a model, simulated and never measured.

Every device has as many samples whatever the number of hosts. Tables lie evenly divided, but for `searched`:

    flat       one all-to-all of all devices brings each device the vectors of its samples
    by host    the same vectors within each host first, then one message to the peer on each other host (SPTT of DMT,
               arXiv 2403.00877, section 3)
    towers     the same, with the vectors of a host's tower compressed before they cross
    searched   the best beginning of our search, with the tables as they are: some copied, some whole, some by row
    fsdp       dense weights divided over all devices and gathered for the forward and the backward pass, tables flat
    hybrid     dense weights divided within each host, gradients added up over hosts (HSDP of DHEN, arXiv 2203.11014)

Computing and messages follow one another, but the gathering of dense weights runs beside computing. Nothing is said
about what towers compute less, or what compression costs in quality: a compressed exchange alone cannot gain more than
the share of the step that the flat exchange takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hardware.cost.step_model import message_share
from hardware.types import HardwareProfile
from planner.parallel.costs import TableCosts
from planner.parallel.demand import FLOAT_BYTES, ModelDemand
from planner.parallel.device_costs import RowCosts, dense_seconds
from planner.parallel.machine import Channel, Machine, machine_of
from planner.parallel.search import Search
from planner.parallel.step import StepModel
from shunter.frozen import Frozen
from shunter.requests.plan import DevicesRequest

MESSAGE_SECONDS = 10e-6  # to start a message to another device or host; assumed
WAYS = ("flat", "by host", "towers", "searched", "fsdp", "hybrid")


class ScalePoint(Frozen):
    """One number of hosts.

    Attributes:
        hosts: Hosts.
        devices: Devices of all hosts.
        step_seconds: Simulated step of each way; `searched` is absent where it was not asked for.
        exchange_share: Share of the flat step that the exchange of vectors takes.
        crossing_bytes: That a device sends to other hosts in a step, of the vectors, flat and through towers.
    """

    hosts: int
    devices: int
    step_seconds: dict[str, float]
    exchange_share: float
    crossing_bytes: dict[str, float]

    def speedup(self, way: str, over: str = "flat") -> float:
        """Speed of one way relative to another."""
        return self.step_seconds[over] / self.step_seconds[way]


class ScaleReport(Frozen):
    """The curves of one model.

    Attributes:
        model: Its family.
        data: Its data.
        batch_per_device: Samples of each device in a step.
        compression: By how much towers compress.
        points: Ascending numbers of hosts.
        told: Where the figures come from.
    """

    model: str
    data: str
    batch_per_device: int
    compression: float
    points: tuple[ScalePoint, ...]
    told: str

    def efficiency(self, point: ScalePoint, way: str) -> float:
        """Samples a second of each device, relative to the fewest hosts."""
        return self.points[0].step_seconds[way] / point.step_seconds[way]


@dataclass(frozen=True)
class _Links:
    """What a device has: channel to its host, its part of the host's network, and how many there are."""

    within: Channel
    across_bytes_per_second: float
    hosts: int
    per_host: int

    @property
    def devices(self) -> int:
        return self.hosts * self.per_host

    def crossing(self, data: float) -> float:
        """Bytes that leave the host, of what is evenly for all devices."""
        return data * (self.hosts - 1) / self.hosts

    def flat(self, data: float) -> float:
        """One all-to-all; both links are busy at the same time."""
        across = self.crossing(data) / self.across_bytes_per_second
        within = data * (self.per_host - 1) / self.devices / self.within.bytes_per_second
        messages = (self.devices - self.per_host) if self.hosts > 1 else 0
        return max(across + messages * MESSAGE_SECONDS, within + (self.per_host - 1) * MESSAGE_SECONDS)

    def by_host(self, data: float, compression: float) -> float:
        """All vectors within the host, then those of the peers, compressed."""
        within = data * (self.per_host - 1) / self.per_host / self.within.bytes_per_second
        across = self.crossing(data) / compression / self.across_bytes_per_second
        return within + across + (self.per_host - 1 + self.hosts - 1) * MESSAGE_SECONDS

    def all_reduce(self, data: float) -> float:
        """Within the host, and each device's part across hosts."""
        within = message_share("all_reduce", self.per_host) * data / self.within.bytes_per_second
        part = data / self.per_host
        across = message_share("all_reduce", self.hosts) * part / self.across_bytes_per_second
        started = 2 * (self.per_host - 1 + self.hosts - 1) * MESSAGE_SECONDS
        return (within if self.per_host > 1 else 0.0) + (across if self.hosts > 1 else 0.0) + started

    def gather_all(self, data: float) -> float:
        """An all-gather over all devices, in as many rings as a host has devices."""
        slowest = min(self.within.bytes_per_second, self.across_bytes_per_second * self.per_host)
        rate = slowest if self.hosts > 1 else self.within.bytes_per_second
        return data * (self.devices - 1) / self.devices / rate + (self.devices - 1) * MESSAGE_SECONDS

    def gather_in_host(self, data: float) -> float:
        """An all-gather within each host."""
        share = (self.per_host - 1) / self.per_host
        return data * share / self.within.bytes_per_second + (self.per_host - 1) * MESSAGE_SECONDS


def scale(
    demand: ModelDemand,
    place: DevicesRequest,
    profiles: Sequence[HardwareProfile],
    hosts: Sequence[int],
    *,
    batch_per_device: int,
    compression: float,
    most_searched: int = 16,
) -> ScaleReport:
    """Simulate a model on ever more hosts.

    Args:
        demand: The model.
        place: Accelerator, devices of a host and network.
        profiles: Profiles of this machine.
        hosts: Numbers of hosts, ascending.
        batch_per_device: Samples of each device in a step.
        compression: By how much towers compress what crosses hosts.
        most_searched: Most hosts for which plans of the tables are searched.

    Raises:
        RequestError: The accelerator is not known.
    """
    per_host = place.devices_per_host or 8
    points, told = [], ""
    for count in hosts:
        machine = machine_of(
            place.model_copy(update={"devices": count * per_host, "devices_per_host": per_host}), profiles
        )
        told = machine.told
        points.append(
            _point(demand, machine, place.network_gbit, batch_per_device, compression, searches=count <= most_searched)
        )
    return ScaleReport(
        model=demand.family,
        data=demand.data,
        batch_per_device=batch_per_device,
        compression=compression,
        points=tuple(points),
        told=told,
    )


def _point(
    demand: ModelDemand, machine: Machine, network_gbit: float, batch: int, compression: float, *, searches: bool
) -> ScalePoint:
    devices = len(machine.devices)
    links = _Links(
        within=machine.within["all_to_all"],
        across_bytes_per_second=network_gbit * 1e9 / 8 / machine.per_host,
        hosts=machine.hosts,
        per_host=machine.per_host,
    )
    vectors = float(batch * FLOAT_BYTES * sum(table.bags * table.width for table in demand.tables))
    weights = float(demand.workload.dense_parameter_bytes)
    dense = dense_seconds(machine, demand, [batch] * devices)[0]
    computing = dense + _rows_seconds(demand, machine, batch)
    reduced = links.all_reduce(weights)
    exchange = 2 * links.flat(vectors)
    steps = {
        "flat": computing + reduced + exchange,
        "by host": computing + reduced + 2 * links.by_host(vectors, 1.0),
        "towers": computing + reduced + 2 * links.by_host(vectors, compression),
        "fsdp": computing - dense + exchange + max(dense, 3 * links.gather_all(weights)),
        "hybrid": computing
        - dense
        + exchange
        + max(dense, 3 * links.gather_in_host(weights) + _across_hosts(links, weights)),
    }
    if searches:
        model = StepModel(TableCosts(machine, demand, batch * devices))
        steps["searched"] = Search(model, "exact").run(0.0).step_seconds
    return ScalePoint(
        hosts=machine.hosts,
        devices=devices,
        step_seconds=steps,
        exchange_share=exchange / steps["flat"],
        crossing_bytes={
            "flat": 2 * links.crossing(vectors),
            "towers": 2 * links.crossing(vectors) / compression,
        },
    )


def _across_hosts(links: _Links, weights: float) -> float:
    """The gradients of each device's part, added up over the hosts."""
    if links.hosts == 1:
        return 0.0
    part = weights / links.per_host
    started = 2 * (links.hosts - 1) * MESSAGE_SECONDS
    return message_share("all_reduce", links.hosts) * part / links.across_bytes_per_second + started


def _rows_seconds(demand: ModelDemand, machine: Machine, batch: int) -> float:
    """Look-up and update of as many rows as a device's own samples have: what each does where all is even."""
    profile, seconds = machine.devices[0].profile, 0.0
    for table in demand.tables:
        costs = RowCosts.of(profile, 1.0, table.width * FLOAT_BYTES)
        each = costs.lookup_seconds + table.width * FLOAT_BYTES * costs.byte_seconds
        seconds += batch * (table.bags * costs.bag_seconds + table.ids_per_sample * each)
    return seconds
