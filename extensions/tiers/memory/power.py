"""Energy of serving from slow memory: the power model of Software Defined Memory (Ardestani et al., ICDCS 2022).

The number of hosts follows from the largest of three needs: bytes, samples per second, and rows per second from the
drives. The power of a host is its idle power, the power of its memory and drives, and a part proportional to its use.
All figures are simulated.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from shunter.errors import RequestError
from shunter.extensions.tiers.memory.demand import TableDemand
from shunter.extensions.tiers.memory.hits import predict_recent_hits
from shunter.extensions.tiers.memory.nodes import USABLE
from shunter.frozen import Frozen
from shunter.yaml_file import read_yaml

SHIPPED = Path(__file__).with_name("serving_hosts.yaml")
BASE = "dram"  # with which the others are compared
BUSY = 0.7  # of what a host reaches at most, which is what it is planned for
REQUEST_SAMPLES = 100  # candidates of a request, whose different rows are read once each


class Host(Frozen):
    """Serving host, with the fields of an entry in the file of hosts.

    Attributes:
        samples_per_second: Samples per second that the host's processors reach.
        dram_bytes: Memory; the part without tables is a row cache.
        slow_bytes: Capacity of the host's drives in bytes; 0 without drives.
        reads_per_second: Largest number of rows that the drives read per second.
        base_watts: Idle power without memory and drives.
        dram_watts_per_gigabyte: Power of the host's memory.
        device_watts: Power of the host's drives.
        dynamic_watts: Additional power at full use.
    """

    samples_per_second: float = Field(gt=0, allow_inf_nan=False)
    dram_bytes: float = Field(gt=0, allow_inf_nan=False)
    slow_bytes: float = Field(ge=0, allow_inf_nan=False)
    reads_per_second: float = Field(ge=0, allow_inf_nan=False)
    base_watts: float = Field(gt=0, allow_inf_nan=False)
    dram_watts_per_gigabyte: float = Field(ge=0, allow_inf_nan=False)
    device_watts: float = Field(ge=0, allow_inf_nan=False)
    dynamic_watts: float = Field(ge=0, allow_inf_nan=False)


@dataclass(frozen=True)
class Fleet:
    """Hosts of one kind that serve a model.

    Attributes:
        hosts: Number of hosts.
        watts: Power of all hosts together.
        limited_by: Need that determines the number of hosts: `memory`, `compute` or `drives`.
        miss_rate: Share of the different rows of a request that are read from drives.
    """

    hosts: int
    watts: float
    limited_by: str
    miss_rate: float


def serving_fleet(
    host: Host, tables: Sequence[TableDemand], samples_per_second: float, *, miss_factor: float = 1.0
) -> Fleet:
    """Return the fewest hosts of a kind that serve tables at a rate.

    Args:
        host: Kind of host.
        tables: The tables, whose rows are served without the state of an optimiser.
        samples_per_second: Rate that all hosts reach together.
        miss_factor: Multiple of the predicted misses, for a sensitivity analysis.
    """
    total = sum(table.rows * table.width * 4 for table in tables)
    held = host.slow_bytes or host.dram_bytes
    miss_rate, reads = 0.0, 0.0
    if host.slow_bytes:
        cache = host.dram_bytes * USABLE * (1 + 1 / max(table.width for table in tables))  # of rows with their state
        found = predict_recent_hits(tables, REQUEST_SAMPLES, cache)
        miss_rate = min(1.0, found.miss_rate * miss_factor)
        reads = float(found.requests.sum()) * miss_rate * samples_per_second / REQUEST_SAMPLES
    needs = {
        "memory": total / (held * USABLE),
        "compute": samples_per_second / (host.samples_per_second * BUSY),
        "drives": reads / (host.reads_per_second * BUSY) if reads else 0.0,
    }
    limited_by = max(needs, key=lambda need: needs[need])
    hosts = max(1, math.ceil(needs[limited_by]))
    used = samples_per_second / (hosts * host.samples_per_second)
    at_rest = host.base_watts + host.dram_watts_per_gigabyte * host.dram_bytes / 1e9 + host.device_watts
    return Fleet(hosts, hosts * (at_rest + used * host.dynamic_watts), limited_by, miss_rate)


def serving_fleets(
    tables: Sequence[TableDemand], samples_per_second: float, *, miss_factor: float = 1.0
) -> Mapping[str, Fleet]:
    """Return one fleet for each kind of host in the default file."""
    return {
        name: serving_fleet(host, tables, samples_per_second, miss_factor=miss_factor)
        for name, host in read_hosts().items()
    }


def saving(fleets: Mapping[str, Fleet], name: str) -> float:
    """Return the share of power that a kind of host saves over hosts without drives; negative if it needs more."""
    return 1 - fleets[name].watts / fleets[BASE].watts


class _File(Frozen):
    hosts: dict[str, Host]


def read_hosts() -> dict[str, Host]:
    """Read the kinds of hosts from the default file."""
    return _File.model_validate(read_yaml(SHIPPED, "file of hosts", "hosts: {mine: {...}}", RequestError)).hosts
