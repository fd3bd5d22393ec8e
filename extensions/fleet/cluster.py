"""Model of a cluster: machines in racks, power and price of accelerators, network, outages and slowdowns."""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, NonNegativeFloat, PositiveFloat, model_validator

from shunter.errors import RequestError
from shunter.frozen import Frozen

MACHINE, RACK, NETWORK = 0, 1, 2  # distance levels of a placement
LARGEST_COUNT = 1_000_000  # per machine or per job
LONGEST_SECONDS = 1e10  # three centuries
LONGEST_NAME = 200

Placement = tuple[tuple[int, int], ...]
"""Accelerators of a job: indices of machines, each with a number of its accelerators."""


def _plain(text: str) -> str:
    if not text.isprintable() or not 0 < len(text) <= LONGEST_NAME:
        raise ValueError(f"a name must have 1 to {LONGEST_NAME} printable characters, unlike {text[:LONGEST_NAME]!a}")
    return text


Name = Annotated[str, AfterValidator(_plain)]
"""Text for terminals and pages, without line ends and escape sequences."""
Count = Annotated[int, Field(gt=0, le=LARGEST_COUNT)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
PositiveSeconds = Annotated[float, Field(gt=0, le=LONGEST_SECONDS)]


class Finite(Frozen):
    """User input in which no number is infinite."""

    model_config = ConfigDict(allow_inf_nan=False)


class PowerCap(Finite):
    """Effect of a power cap of a machine on its busy accelerators.

    Attributes:
        power_share: Power draw relative to that without the cap.
        speed: Compute speed relative to that without the cap; communication is assumed to be unaffected.
    """

    power_share: PositiveFloat = Field(lt=1.0)
    speed: PositiveFloat = Field(le=1.0)


class AcceleratorType(Finite):
    """Power, memory and price of one accelerator type, from the cluster file or the catalogue; 0 if unknown.

    Attributes:
        power_caps: Allowed power caps of machines of this type; empty if the operator allows none.
    """

    idle_watts: NonNegativeFloat = 0.0
    busy_watts: NonNegativeFloat = 0.0
    price_per_hour: NonNegativeFloat = 0.0
    memory_gib: NonNegativeFloat = 0.0
    power_caps: tuple[PowerCap, ...] = ()

    def cap(self, level: int) -> tuple[float, float]:
        """Return the relative power and speed of a cap: 0 is no cap, others count from 1 in the order of the file."""
        return (self.power_caps[level - 1].power_share, self.power_caps[level - 1].speed) if level else (1.0, 1.0)


class Machine(Finite):
    """Accelerators of one type in one server.

    Attributes:
        server: Server that may contain several machines, such as its GPUs and its remaining cores. By default each
            machine is its own server.
        memory_gib: Memory of the server, shared by training runs on all its accelerators; 0 if unknown, and then not
            limited.
    """

    name: Name
    rack: Name = "rack0"
    accelerator: Name = "gpu"
    count: Count = 1
    server: Name | None = None
    memory_gib: NonNegativeFloat = 0.0

    @property
    def box(self) -> str:
        """Name of the server that the machine belongs to."""
        return self.server or self.name


class Outage(Finite):
    """Period in which a machine is down; its jobs stop, and later resume from their last checkpoint."""

    machine: str
    begin_seconds: Seconds
    end_seconds: PositiveSeconds | None = None  # None: it never returns


class Slowdown(Finite):
    """Period in which a machine computes more slowly, because of a fault or other load."""

    machine: str
    begin_seconds: Seconds
    end_seconds: PositiveSeconds | None = None  # None: for good
    speed: PositiveFloat = Field(default=0.5, le=1.0)


class Network(Finite):
    """Network that the jobs share.

    Attributes:
        congestion: Factor on the time of all communication between machines, to model a fabric with other load.
        shared_uplinks: If True, jobs that cross the same uplink of a machine or a rack share its bandwidth.
        bytes_per_second: Bandwidth within a machine, within a rack and across racks; without effect, because no format
            of jobs states their traffic.
        latency_seconds: Latency of one message, by level; without effect.
    """

    congestion: float = Field(default=1.0, ge=1.0)
    shared_uplinks: bool = True
    bytes_per_second: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (300e9, 12.5e9, 3.125e9)
    latency_seconds: tuple[NonNegativeFloat, NonNegativeFloat, NonNegativeFloat] = (5e-6, 20e-6, 50e-6)

    def congestion_at(self, level: int) -> float:
        """Return the factor on the time of communication at a level; 1 within a machine."""
        return self.congestion if level > MACHINE else 1.0


class Cluster(Finite):
    """Cluster of machines, with their network, outages and limits.

    Attributes:
        machines: All machines; policies break ties by this order.
        power_limit_watts: Limit on the power of all idle and busy accelerators together; only policies that declare
            support for it respect it.
    """

    machines: tuple[Machine, ...]
    accelerators: dict[Name, AcceleratorType] = Field(default_factory=dict)
    network: Network = Network()
    outages: tuple[Outage, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    power_limit_watts: PositiveFloat | None = None

    @model_validator(mode="after")
    def _check_names(self) -> "Cluster":
        if not self.machines:
            raise ValueError("it has no machines")
        names = [machine.name for machine in self.machines]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two machines of the cluster are called {twice!r}: give each its own name")
        if unknown := {outage.machine for outage in self.outages} - set(names):
            raise ValueError(f"an outage names the unknown machine {min(unknown)!r}: name a machine of the cluster")
        if unknown := {slowdown.machine for slowdown in self.slowdowns} - set(names):
            raise ValueError(f"a slowdown names the unknown machine {min(unknown)!r}: name a machine of the cluster")
        boxes: dict[str, Machine] = {}
        for machine in self.machines:
            other = boxes.setdefault(machine.box, machine)
            if (other.rack, other.memory_gib) != (machine.rack, machine.memory_gib):
                raise ValueError(
                    f"the machines {other.name!r} and {machine.name!r} belong to one server but differ in "
                    "rack or memory_gib: give both the values of the server"
                )
        return self

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Accelerator types of the cluster, in the order of the machines."""
        return tuple(dict.fromkeys(machine.accelerator for machine in self.machines))

    @cached_property
    def machines_of(self) -> dict[str, tuple[int, ...]]:
        """Indices of the machines by accelerator type."""
        return {
            name: tuple(i for i, machine in enumerate(self.machines) if machine.accelerator == name)
            for name in self.types
        }

    @cached_property
    def rack_of(self) -> tuple[int, ...]:
        """Index of the rack of each machine."""
        racks = list(dict.fromkeys(machine.rack for machine in self.machines))
        return tuple(racks.index(machine.rack) for machine in self.machines)

    @cached_property
    def server_of(self) -> tuple[int, ...]:
        """Index of the server of each machine."""
        number = {box: i for i, box in enumerate(dict.fromkeys(machine.box for machine in self.machines))}
        return tuple(number[machine.box] for machine in self.machines)

    @cached_property
    def memory_of(self) -> dict[int, float]:
        """Memory in GiB by index of each server whose memory is known."""
        found = zip(self.server_of, self.machines, strict=True)
        return {server: machine.memory_gib for server, machine in found if machine.memory_gib}

    def beside(self, machine: int) -> tuple[int, ...]:
        """Return all machines of a machine's server, including the machine itself; they fail together."""
        server = self.server_of[machine]
        return tuple(i for i, other in enumerate(self.server_of) if other == server)

    @cached_property
    def rack_order_of(self) -> dict[str, tuple[int, ...]]:
        """Indices of the machines by accelerator type, sorted by rack."""
        return {
            name: tuple(sorted(found, key=lambda i: (self.rack_of[i], i))) for name, found in self.machines_of.items()
        }

    @cached_property
    def count_of(self) -> dict[str, int]:
        """Number of accelerators of the cluster by type."""
        return {name: sum(self.machines[i].count for i in self.machines_of[name]) for name in self.types}

    @cached_property
    def count(self) -> int:
        """Number of accelerators of the cluster."""
        return sum(machine.count for machine in self.machines)

    def level(self, placement: Placement) -> int:
        """Return the distance level of a placement: MACHINE, RACK or NETWORK, the tightest that contains it."""
        if len(placement) == 1:
            return MACHINE
        racks = {self.rack_of[machine] for machine, _ in placement}
        return RACK if len(racks) == 1 else NETWORK

    @cached_property
    def sizes_of(self) -> dict[str, tuple[int, ...]]:
        """Numbers of accelerators of each machine by type, the largest first."""
        return {
            name: tuple(sorted((self.machines[i].count for i in machines), reverse=True))
            for name, machines in self.machines_of.items()
        }

    @cached_property
    def largest_rack_of(self) -> dict[str, int]:
        """Number of accelerators by type in the rack with most accelerators of the type."""
        found: dict[str, Counter[int]] = {name: Counter() for name in self.types}
        for machine, rack in zip(self.machines, self.rack_of, strict=True):
            found[machine.accelerator][rack] += machine.count
        return {name: max(counts.values()) for name, counts in found.items()}

    def best_level(self, accelerators: int, accelerator: str) -> int:
        """Return the tightest level at which the cluster has enough accelerators of a type; NETWORK if it never has."""
        if accelerators <= self.sizes_of[accelerator][0]:
            return MACHINE
        return RACK if accelerators <= self.largest_rack_of[accelerator] else NETWORK

    def type_of(self, name: str) -> AcceleratorType:
        """Return power and price of a type; zeros if unknown."""
        return self.accelerators.get(name, AcceleratorType())

    @cached_property
    def has_watts(self) -> bool:
        """Return True if the power of every type is known."""
        return all(self.type_of(name).busy_watts for name in self.types)

    @cached_property
    def has_prices(self) -> bool:
        """Return True if the price of every type is known."""
        return all(self.type_of(name).price_per_hour for name in self.types)

    def require(self, asks: Mapping[str, int], job: str) -> None:
        """Raise if no machines of the cluster could ever run a job, given its number of accelerators by usable type.

        Raises:
            RequestError: The cluster has too few accelerators of every type.
        """
        if any(count <= self.count_of.get(name, 0) for name, count in asks.items()):
            return
        most = max((self.count_of.get(name, 0) for name in asks), default=0)
        raise RequestError(
            f"job {job!r} needs {min(asks.values(), default=1)} accelerators of one type, but the cluster "
            f"has only {most}: remove the job, or describe a larger cluster"
        )
