"""Devices over which a model is divided, and their links: measured, from the catalogue, or from a file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, get_args

from pydantic import Field, ValidationError, model_validator

from shunter.errors import RequestError
from shunter.extensions.distributed.plan_request import DevicesRequest
from shunter.frozen import Frozen
from shunter.hardware.catalogue.offers import COLLECTIVE_START_SECONDS, catalogue_profile
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.hardware.cost.step_model import LOOPBACK_SECONDS, LOOPBACK_SHARE, message_share
from shunter.hardware.types import SHARED_OPERATIONS, Collective, CollectiveCost, HardwareProfile, Placement
from shunter.ingestion.sources.guard import check_text
from shunter.validation import clause, sentence
from shunter.yaml_file import read_yaml

NETWORK_LATENCY_SECONDS = 20e-6  # of a message between hosts; assumed
BYTES_PER_GBIT = 1e9 / 8
SHARED_SHARE = 1 / 4  # of a copy's rate, where the exchange through shared memory was not measured; assumed
CATALOGUE_PER_HOST = 8
MOST_DEVICES = 4096
EXAMPLE = "hosts: [{name: a, accelerator: NVIDIA A100 SXM4 80GB, count: 8}]"


@dataclass(frozen=True, kw_only=True)
class Channel:
    """Latency of a collective on a device's link, and its rate in each direction if both are in use."""

    latency_seconds: float
    bytes_per_second: float

    def seconds(self, sent: float) -> float:
        """Return the seconds of one collective in which the device sends this number of bytes."""
        return self.latency_seconds + sent / self.bytes_per_second


@dataclass(frozen=True, kw_only=True)
class Device:
    """Device of a machine.

    Attributes:
        host: Number of the device's host.
        profile: Measured or published performance.
        share: Share of the profile's cores that the device has, because processes share a processor.
        memory_bytes: Memory for the model.
    """

    name: str
    host: int
    profile: HardwareProfile
    share: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Devices with their links.

    Attributes:
        devices: Devices, host by host; each host has the same number.
        within: Channel of a device to the other devices of its host, by collective operation.
        across: Channel between hosts; None for a single host.
        source: Source of the figures: measured or estimated.
        told: Source of the figures as a sentence.
        computes_messages: Whether a device's own cores move its messages, so that it cannot compute meanwhile.
        shared: Channel of pooled rows through shared memory, by the collective that it replaces; None if they use the
            same channel as other messages.
        is_ahead: Whether ids are sent one batch early and gradients during the table updates, as in `shunter train`.
        key: Key under which executed plans are recorded; None if plans cannot be executed on the machine.
    """

    devices: tuple[Device, ...]
    within: Mapping[Collective, Channel]
    across: Channel | None
    source: str
    told: str
    computes_messages: bool
    shared: Mapping[Collective, Channel] | None = None
    is_ahead: bool = False
    key: str | None = None

    @property
    def hosts(self) -> int:
        """Number of hosts of the machine."""
        return self.devices[-1].host + 1

    @property
    def per_host(self) -> int:
        """Number of devices per host."""
        return len(self.devices) // self.hosts

    def with_memory(self, memory_bytes: int | None) -> "Machine":
        """Return the machine with a limit on the memory of each device."""
        if memory_bytes is None:
            return self
        devices = [replace(one, memory_bytes=min(one.memory_bytes, memory_bytes)) for one in self.devices]
        return replace(self, devices=tuple(devices))


def machine_of(request: DevicesRequest, profiles: Sequence[HardwareProfile]) -> Machine:
    """Return the machine that a request names.

    Args:
        request: The devices.
        profiles: Profiles of this machine, with measured collectives if available.

    Raises:
        RequestError: The file or the accelerator does not exist, or a link is missing.
    """
    if request.machine is not None:
        return read_machine(Path(request.machine), profiles)
    count = request.devices or 2
    if request.accelerator is None:
        return local_processes(profiles, count, request.devices_per_host, request.network_gbit)
    per_host = request.devices_per_host or math.gcd(count, CATALOGUE_PER_HOST)
    profile = _of_catalogue(request.accelerator, profiles)
    memory = profile.accelerator.memory_bytes
    devices = [
        Device(name=f"{host}.{one}", host=host, profile=profile, share=1.0, memory_bytes=memory)
        for host in range(count // per_host)
        for one in range(per_host)
    ]
    return Machine(
        devices=tuple(devices),
        within=_channels(profile, per_host),
        across=_network(request.network_gbit) if count > per_host else None,
        source="estimated",
        told=f"Rates are estimated from the catalogue's row of {profile.accelerator.model}; the network is taken as "
        "said.",
        computes_messages=False,
    )


def local_processes(
    profiles: Sequence[HardwareProfile], count: int, per_host: int | None = None, network_gbit: float = 100.0
) -> Machine:
    """Return several processes of this machine as a machine; they share the processor or have a GPU each."""
    profile = next((one for one in profiles if one.accelerator.kind == "cuda"), profiles[0])
    if sum(one.accelerator.kind == "cuda" for one in profiles) < count:
        profile = next((one for one in profiles if one.accelerator.kind == "cpu"), profile)
    threads, per_host = max(1, profile.accelerator.cores // count), per_host or count
    kind = "cpu" if profile.accelerator.kind == "cpu" else "cuda"
    alike = _processes(profile, count, threads, count, name=kind, between="its processes")
    shared = None
    if kind == "cpu" and per_host == count > 1 and profile.shared_vectors != ():  # () if they cannot share memory
        shared = _by_operation(profile, profile.shared_vectors or (), SHARED_OPERATIONS, count, count)
        rate = profile.copy_bytes_per_second.value * SHARED_SHARE / max(1.0, count / profile.rated_cores)
        estimated = Channel(latency_seconds=LOOPBACK_SECONDS, bytes_per_second=rate)
        shared = shared or dict.fromkeys(SHARED_OPERATIONS, estimated)
    return replace(
        alike,
        devices=tuple(replace(one, host=place // per_host) for place, one in enumerate(alike.devices)),
        within=_channels(profile, per_host),
        across=_network(network_gbit) if count > per_host else None,
        shared=shared,
        key=executed_on(profile, count, threads) if per_host == count else None,
    )


def _processes(
    profile: HardwareProfile, count: int, threads: int, shared_by: int, *, name: str, between: str
) -> Machine:
    """Return equal processes on one host; `shared_by` processes share the cores and the memory of a processor."""
    on_cpu, measured = profile.accelerator.kind == "cpu", bool(profile.collectives)
    device = Device(
        name=name,
        host=0,
        profile=profile,
        share=min(threads / profile.rated_cores, 1 / shared_by) if on_cpu else 1.0,
        memory_bytes=profile.accelerator.memory_bytes // (shared_by if on_cpu else 1),
    )
    messages = (
        f"messages between {between} too." if measured else "rates of messages are estimated from its memory rate."
    )
    return Machine(
        devices=tuple(replace(device, name=f"{name}.{place}") for place in range(count)),
        within=_channels(profile, count, shared_by),
        across=None,
        source="measured" if measured else "estimated",
        told=f"Rates were measured on {profile.accelerator.model}, {messages}",
        computes_messages=on_cpu,
        is_ahead=True,
    )


@dataclass(frozen=True)
class OnNodes:
    """Processes of a training job on the nodes of a cluster.

    Attributes:
        hosts: Machines of the nodes, in a fixed order.
        shared_by: Largest number of processes on one node.
    """

    hosts: tuple[str, ...]
    shared_by: int

    def threads(self, placement: Placement) -> int:
        """Return the number of threads of each process."""
        return max(1, placement.threads // self.shared_by)

    def key(self, profile: HardwareProfile, processes: int, threads: int) -> str:
        """Return the key of plans executed on these nodes, in any order; see `executed_on`."""
        threads = threads if profile.accelerator.kind == "cpu" else 1
        each = f"{processes} processes of {threads} threads, {self.shared_by} on a node"
        return f"nodes on {', '.join(self.hosts)}, {profile.accelerator.model}, {each}"


def processes_on_nodes(profile: HardwareProfile, count: int, threads: int, nodes: OnNodes) -> Machine:
    """Return equal processes on the nodes of a cluster, whose exchanges have the measured costs of the network.

    The planner treats them as one host, as the training group does. `profile` is that of the slowest node, with
    collectives between the nodes.
    """
    name = profile.accelerator.name
    alike = _processes(profile, count, threads, nodes.shared_by, name=name, between="its nodes")
    return replace(alike, key=nodes.key(profile, count, threads))


def executed_on(profile: HardwareProfile, processes: int, threads: int) -> str:
    """Return the key of plans executed by this number of processes and threads on this machine."""
    threads = threads if profile.accelerator.kind == "cpu" else 1
    return f"{profile.host}, {profile.accelerator.name}, {processes} processes of {threads} threads"


class _Host(Frozen):
    name: str = Field(min_length=1)
    accelerator: str = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=MOST_DEVICES)
    memory_gib: Annotated[float, Field(gt=0, le=2**20)] | None = None


class _Link(Frozen):
    between: tuple[str, str] = Field(
        description="The two hosts that the link connects; the same host twice for the link between its own devices."
    )
    bytes_per_second: float = Field(gt=0, allow_inf_nan=False)
    latency_seconds: float = Field(default=NETWORK_LATENCY_SECONDS, ge=0, allow_inf_nan=False)

    @property
    def channel(self) -> Channel:
        return Channel(latency_seconds=self.latency_seconds, bytes_per_second=self.bytes_per_second)


class _MachineFile(Frozen):
    hosts: tuple[_Host, ...] = Field(min_length=1)
    links: tuple[_Link, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "_MachineFile":
        names = [host.name for host in self.hosts]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two hosts are called {twice!r}: rename one")
        counts = {host.count for host in self.hosts}
        if len(counts) > 1:
            raise ValueError(
                "the hosts of the machine file have different numbers of devices: give each host the same number"
            )
        for link in self.links:
            if unknown := next((end for end in link.between if end not in names), None):
                raise ValueError(f"a link names the unknown host {unknown!r}")
        known = {frozenset(link.between) for link in self.links}
        for place, name in enumerate(names):
            for other in names[place + 1 :]:
                if frozenset((name, other)) not in known:
                    raise ValueError(f"there is no link between the hosts {name!r} and {other!r}: add it to links")
        return self


def read_machine(path: Path, profiles: Sequence[HardwareProfile]) -> Machine:
    """Read devices and links from a file.

    Collectives between hosts run at the rate of the slowest link between two hosts.

    Raises:
        RequestError: The file cannot be read, is inconsistent, lacks a link, or names an unknown accelerator.
    """
    check_text(str(path))
    values = read_yaml(path, "machine file", EXAMPLE, RequestError)
    try:
        file = _MachineFile.model_validate(values)
    except ValidationError as error:
        told = sentence([clause(fault, _MachineFile) for fault in error.errors()])
        raise RequestError(f"The machine file {path} cannot be used: {told}") from error
    devices, own = [], {frozenset(link.between): link for link in file.links}
    channels: list[Mapping[Collective, Channel]] = []
    for number, host in enumerate(file.hosts):
        profile = _of_catalogue(host.accelerator, profiles)
        memory = profile.accelerator.memory_bytes if host.memory_gib is None else int(host.memory_gib * 2**30)
        devices += [
            Device(name=f"{host.name}.{one}", host=number, profile=profile, share=1.0, memory_bytes=memory)
            for one in range(host.count)
        ]
        link = own.get(frozenset((host.name,)))
        alike = None if link is None else dict.fromkeys(get_args(Collective), link.channel)
        channels.append(alike or _channels(profile, host.count))
    between = [link.channel for ends, link in own.items() if len(ends) > 1]
    return Machine(
        devices=tuple(devices),
        within={one: max((of[one] for of in channels), key=lambda c: c.seconds(2**20)) for one in get_args(Collective)},
        across=max(between, key=lambda channel: channel.seconds(2**20)) if between else None,
        source="estimated",
        told=f"Rates are estimated from the catalogue; links are taken as {path} says.",
        computes_messages=False,
    )


def _of_catalogue(name: str, profiles: Sequence[HardwareProfile]) -> HardwareProfile:
    """Return the profile of an accelerator: measured on this machine, or else estimated from the catalogue."""
    local = next((one for one in profiles if one.accelerator.name == name), None)
    return local or catalogue_profile(load_catalogue().find_accelerator(name))


def _channels(profile: HardwareProfile, devices: int, sharing: int | None = None) -> dict[Collective, Channel]:
    """Return channels by collective, from measurements, the catalogue's link or the memory rate.

    `sharing` is the number of devices that share the cores of a machine; None for all devices.
    """
    sharing, operations = devices if sharing is None else sharing, get_args(Collective)
    rate = profile.copy_bytes_per_second.value * LOOPBACK_SHARE
    estimated = Channel(latency_seconds=LOOPBACK_SECONDS, bytes_per_second=rate)
    measured = _by_operation(profile, profile.collectives, operations, devices, sharing)
    return measured or dict.fromkeys(operations, estimated)


def _by_operation(
    profile: HardwareProfile,
    costs: Sequence[CollectiveCost],
    operations: Sequence[Collective],
    devices: int,
    sharing: int,
) -> dict[Collective, Channel]:
    """Return the channel of each collective from measured costs; empty without any measurement."""
    made: dict[Collective, Channel] = {}
    known = {cost.operation: cost for cost in costs}
    fallback = known.get("all_to_all") or known.get("all_reduce") or next(iter(costs), None)
    for operation in operations:
        cost = known.get(operation, fallback)
        if cost is None:
            return {}
        sent = message_share(cost.operation, cost.processes)
        steps = math.log2(max(devices, 2)) / math.log2(cost.processes)
        crowd = 1.0
        if profile.accelerator.kind == "cpu":  # processes share the cores that move the messages
            timed = cost.processes if sharing == devices else 1  # that shared them while it was measured
            crowd = max(1.0, sharing / profile.rated_cores) / max(1.0, timed / profile.rated_cores)
        made[operation] = Channel(
            latency_seconds=(cost.latency_seconds or COLLECTIVE_START_SECONDS) * steps * crowd,
            bytes_per_second=cost.bytes_per_second * sent / crowd,
        )
    return made


def _network(gbit: float) -> Channel:
    return Channel(latency_seconds=NETWORK_LATENCY_SECONDS, bytes_per_second=gbit * BYTES_PER_GBIT)
