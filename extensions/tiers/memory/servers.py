"""Servers and their tiers of memory, from YAML."""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.yaml_file import read_yaml

SHIPPED = Path(__file__).with_name("servers.yaml")
BASE = "hbm_dram"  # with which the others are compared


class Tier(Frozen):
    """Memory tier of a server, such as HBM, DRAM or flash.

    Attributes:
        capacity_bytes: Capacity in bytes.
        read_bytes_per_second: Bandwidth of all concurrent reads.
        write_bytes_per_second: Bandwidth of all concurrent writes.
        granule_bytes: Smallest number of bytes that one read transfers.
        reads_per_second: Block reads per second of a block tier, whose rows are cached in the other tiers; None for a
            byte-addressed tier.
        latency_seconds: Time from request to first byte of a read.
        writes_per_day: Endurance in full writes per day; None without wear.
    """

    capacity_bytes: float = Field(gt=0, allow_inf_nan=False)
    read_bytes_per_second: float = Field(gt=0, allow_inf_nan=False)
    write_bytes_per_second: float = Field(gt=0, allow_inf_nan=False)
    granule_bytes: int = Field(ge=1)
    reads_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    latency_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    writes_per_day: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @property
    def is_block(self) -> bool:
        """Return True if the tier is read in blocks."""
        return self.reads_per_second is not None


class Server(Frozen):
    """Type of server with its memory tiers.

    Attributes:
        tiers: Memory tiers by name, the fastest first; a tier that is read in blocks is last.
        flops_per_second: FLOP/s that the layers reach.
        watts: Power under load.
        price_per_hour: US dollars.
    """

    tiers: dict[str, Tier] = Field(min_length=1)
    flops_per_second: float = Field(gt=0, allow_inf_nan=False)
    watts: float = Field(gt=0, allow_inf_nan=False)
    price_per_hour: float = Field(ge=0, allow_inf_nan=False)


class _File(Frozen):
    servers: dict[str, Server] = Field(min_length=1)


def read_servers(path: Path | None = None) -> dict[str, Server]:
    """Return the servers of a file, by default the shipped ones.

    Raises:
        RequestError: The file does not describe servers.
    """
    path = path or SHIPPED
    values: Any = read_yaml(path, "file of servers", "servers: {mine: {...}}", RequestError)
    try:
        found = _File.model_validate(values).servers
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise RequestError(
            f"The server file {path} is invalid ({where}: {first['msg'].lower()}): see {SHIPPED} for an example."
        ) from None
    for name, server in found.items():
        blocks = [tier.is_block for tier in server.tiers.values()]
        if blocks[0] or any(blocks[:-1]):
            raise RequestError(
                f"The memory tiers of {name} in {path} are in the wrong order: a tier that is read in "
                "blocks must be last, after at least one other."
            )
    return found
