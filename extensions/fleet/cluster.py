"""The cluster: machines in racks, their accelerators with power and price, the network between them, and outages."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, NonNegativeFloat, PositiveFloat, model_validator

from shunter.errors import RequestError
from shunter.frozen import Frozen

MACHINE, RACK, NETWORK = 0, 1, 2  # how far the accelerators of a placement lie apart
LARGEST_COUNT = 1_000_000  # of accelerators in one machine, or for one job
LONGEST_SECONDS = 1e10  # three centuries
LONGEST_NAME = 200

Placement = tuple[tuple[int, int], ...]
"""What a job holds: indices of machines, each with a count of its accelerators."""


def _plain(text: str) -> str:
    if not text.isprintable() or not 0 < len(text) <= LONGEST_NAME:
        raise ValueError(f"a name is 1 to {LONGEST_NAME} printable characters, and {text[:LONGEST_NAME]!a} is not")
    return text


Name = Annotated[str, AfterValidator(_plain)]
"""What is written on terminals and pages: without line ends and escape sequences."""
Count = Annotated[int, Field(gt=0, le=LARGEST_COUNT)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
PositiveSeconds = Annotated[float, Field(gt=0, le=LONGEST_SECONDS)]


class Finite(Frozen):
    """What a user writes: no figure of it is infinite."""

    model_config = ConfigDict(allow_inf_nan=False)


class PowerCap(Finite):
    """What a limit on the power of a machine does to its accelerators at work.

    Attributes:
        power_share: What they then draw, as a share of what they draw without it.
        speed: What their arithmetic then does, as a share; communication is assumed to take as long as before.
    """

    power_share: PositiveFloat = Field(lt=1.0)
    speed: PositiveFloat = Field(le=1.0)


class AcceleratorType(Finite):
    """What one accelerator of a type draws, holds and costs, as the cluster's file or the catalogue says; 0 is unknown.

    Attributes:
        power_caps: The limits that its machines may be set to; none where the operator allows none.
    """

    idle_watts: NonNegativeFloat = 0.0
    busy_watts: NonNegativeFloat = 0.0
    price_per_hour: NonNegativeFloat = 0.0
    memory_gib: NonNegativeFloat = 0.0
    power_caps: tuple[PowerCap, ...] = ()

    def cap(self, level: int) -> tuple[float, float]:
        """Share of power and of speed at a cap: 0 is none, the others count from 1 in the order of the file."""
        return (self.power_caps[level - 1].power_share, self.power_caps[level - 1].speed) if level else (1.0, 1.0)


class Machine(Finite):
    """Some accelerators of one type in one box.

    Attributes:
        server: The box, of which several machines may be parts: its GPUs, and the cores beside them. By default each
            machine is a box of its own.
        memory_gib: Memory of the box that trainings share, whichever accelerators of it they use; 0 is unknown, and
            then nobody counts it.
    """

    name: Name
    rack: Name = "rack0"
    accelerator: Name = "gpu"
    count: Count = 1
    server: Name | None = None
    memory_gib: NonNegativeFloat = 0.0

    @property
    def box(self) -> str:
        """The box that it is, or a part of."""
        return self.server or self.name


class Outage(Finite):
    """A machine that is away for a while; what runs on it is stopped and goes on from its last checkpoint."""

    machine: str
    begin_seconds: Seconds
    end_seconds: PositiveSeconds | None = None  # None: it never returns


class Slowdown(Finite):
    """A machine that computes more slowly for a while, for a fault of its own or for others that load it."""

    machine: str
    begin_seconds: Seconds
    end_seconds: PositiveSeconds | None = None  # None: for good
    speed: PositiveFloat = Field(default=0.5, le=1.0)


class Network(Finite):
    """The network that jobs share.

    Attributes:
        congestion: Factor on the time of every communication beyond one machine, for a fabric that others load too.
        shared_uplinks: Whether jobs that cross the same uplink of a machine or a rack divide its bandwidth.
        bytes_per_second: Bandwidth within a machine, within a rack and across, for jobs given by what they send.
        latency_seconds: Of one message, by level.
    """

    congestion: float = Field(default=1.0, ge=1.0)
    shared_uplinks: bool = True
    bytes_per_second: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = (300e9, 12.5e9, 3.125e9)
    latency_seconds: tuple[NonNegativeFloat, NonNegativeFloat, NonNegativeFloat] = (5e-6, 20e-6, 50e-6)

    def congestion_at(self, level: int) -> float:
        """Factor on the time of communication at a level: within a machine nobody is in the way."""
        return self.congestion if level > MACHINE else 1.0


class Cluster(Finite):
    """All machines, in the order in which ties between them are decided.

    Attributes:
        power_limit_watts: What all accelerators together may draw, at rest and at work; only policies that say so
            keep to it.
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
            raise ValueError(f"two machines are called {twice!r}")
        if unknown := {outage.machine for outage in self.outages} - set(names):
            raise ValueError(f"an outage names the machine {min(unknown)!r}, which is not there")
        if unknown := {slowdown.machine for slowdown in self.slowdowns} - set(names):
            raise ValueError(f"a slowdown names the machine {min(unknown)!r}, which is not there")
        boxes: dict[str, Machine] = {}
        for machine in self.machines:
            other = boxes.setdefault(machine.box, machine)
            if (other.rack, other.memory_gib) != (machine.rack, machine.memory_gib):
                raise ValueError(
                    f"the machines {other.name!r} and {machine.name!r} are of one server and differ in rack or "
                    "memory_gib, which are the server's"
                )
        return self

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The accelerator types that are there, in the order of the machines."""
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
        """Number of its rack for each machine."""
        racks = list(dict.fromkeys(machine.rack for machine in self.machines))
        return tuple(racks.index(machine.rack) for machine in self.machines)

    @cached_property
    def server_of(self) -> tuple[int, ...]:
        """Number of its server for each machine."""
        number = {box: i for i, box in enumerate(dict.fromkeys(machine.box for machine in self.machines))}
        return tuple(number[machine.box] for machine in self.machines)

    @cached_property
    def memory_of(self) -> dict[int, float]:
        """Memory in GiB by the number of each server whose memory is known."""
        found = zip(self.server_of, self.machines, strict=True)
        return {server: machine.memory_gib for server, machine in found if machine.memory_gib}

    def beside(self, machine: int) -> tuple[int, ...]:
        """All machines of the server of one, itself included: they go away together."""
        server = self.server_of[machine]
        return tuple(i for i, other in enumerate(self.server_of) if other == server)

    @cached_property
    def rack_order_of(self) -> dict[str, tuple[int, ...]]:
        """Indices of the machines by accelerator type, rack by rack."""
        return {
            name: tuple(sorted(found, key=lambda i: (self.rack_of[i], i))) for name, found in self.machines_of.items()
        }

    @cached_property
    def count_of(self) -> dict[str, int]:
        """How many accelerators there are by type."""
        return {name: sum(self.machines[i].count for i in self.machines_of[name]) for name in self.types}

    @cached_property
    def count(self) -> int:
        """How many accelerators there are."""
        return sum(machine.count for machine in self.machines)

    def level(self, placement: Placement) -> int:
        """How far the accelerators of a placement lie apart."""
        if len(placement) == 1:
            return MACHINE
        racks = {self.rack_of[machine] for machine, _ in placement}
        return RACK if len(racks) == 1 else NETWORK

    @cached_property
    def sizes_of(self) -> dict[str, tuple[int, ...]]:
        """Accelerators of each machine by type, the largest first."""
        return {
            name: tuple(sorted((self.machines[i].count for i in machines), reverse=True))
            for name, machines in self.machines_of.items()
        }

    @cached_property
    def largest_rack_of(self) -> dict[str, int]:
        """Accelerators of each type in the rack that has most of them."""
        return {name: max(self._count_by_rack(machines).values()) for name, machines in self.machines_of.items()}

    def _count_by_rack(self, machines: Iterable[int]) -> Counter[int]:
        found: Counter[int] = Counter()
        for i in machines:
            found[self.rack_of[i]] += self.machines[i].count
        return found

    def best_level(self, accelerators: int, accelerator: str) -> int:
        """The tightest level at which so many accelerators of a type exist at all; NETWORK also where they do not."""
        if accelerators <= self.sizes_of[accelerator][0]:
            return MACHINE
        return RACK if accelerators <= self.largest_rack_of[accelerator] else NETWORK

    def type_of(self, name: str) -> AcceleratorType:
        """Power and price of a type; zero where nothing is known."""
        return self.accelerators.get(name, AcceleratorType())

    @cached_property
    def has_watts(self) -> bool:
        """Whether the power of every type is known."""
        return all(self.type_of(name).busy_watts for name in self.types)

    @cached_property
    def has_prices(self) -> bool:
        """Whether the price of every type is known."""
        return all(self.type_of(name).price_per_hour for name in self.types)

    def require(self, asks: Mapping[str, int], job: str) -> None:
        """Refuse a job that would wait for ever.

        Args:
            asks: Accelerators that it asks for by type that it can use.
            job: Its name.

        Raises:
            RequestError: No type has that many accelerators.
        """
        if any(count <= self.count_of.get(name, 0) for name, count in asks.items()):
            return
        most = max((self.count_of.get(name, 0) for name in asks), default=0)
        raise RequestError(
            f"job {job!r} asks for {min(asks.values(), default=1)} accelerators of one type that it can use, and the "
            f"cluster has {most}: take the job out, or describe a larger cluster"
        )


def uniform_cluster(
    racks: int, machines_per_rack: int, accelerators_per_machine: int, accelerator: str = "gpu", **rest: object
) -> Cluster:
    """A cluster of equal machines.

    Args:
        racks: How many racks.
        machines_per_rack: Machines in each.
        accelerators_per_machine: Accelerators in each machine.
        accelerator: Their type.
        rest: Other fields of `Cluster`.
    """
    machines = [
        Machine(name=f"r{r}m{m}", rack=f"r{r}", accelerator=accelerator, count=accelerators_per_machine)
        for r in range(racks)
        for m in range(machines_per_rack)
    ]
    return Cluster.model_validate({"machines": machines, **rest})
