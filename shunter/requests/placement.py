"""Request groups of the machine: permitted placements, exploration, prices of its time, and a cluster in its place."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from shunter.requests.groups import Group
from shunter.secrets import check_is_path, check_names_no_user
from shunter.settings import Settings
from shunter.validation import checked_bytes, parse_bytes


class Explore(StrEnum):
    """Permitted exploration of placements other than the incumbent, for a recurring job."""

    NEVER = "never"
    BOUNDED = "bounded"
    FREE = "free"


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    """Parse batch sizes such as `64,512`; return them in ascending order.

    Raises:
        ValueError: A part is no positive whole number.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"{text!r} is no list of batch sizes: write positive whole numbers, such as 512,1024")
    return tuple(sorted({int(part) for part in parts}))


def _checked(text: str | None) -> str | None:
    return None if text is None else ",".join(map(str, parse_batch_sizes(text)))


class PlacementRequest(Group, frozen=True, title="Advanced: placement"):
    """Placements that may be chosen."""

    batch_sizes: Annotated[str | None, AfterValidator(_checked)] = Field(
        default=None,
        description="Batch sizes to choose from, such as 512,1024; if omitted, powers of two from 64 on.",
    )
    explore: Explore = Field(
        default=Explore.BOUNDED,
        description="Whether recurring jobs may try another batch size: never, bounded or free.",
    )

    max_quality_loss: float | None = Field(
        default=None,
        ge=0,
        description="Largest relative NE increase by batch size or precision, such as 0.01; if omitted, seed noise.",
    )
    embedding_memory: Annotated[str | None, AfterValidator(checked_bytes)] = Field(
        default=None,
        description="Memory for the embedding tables, such as 2GiB; larger tables are stored in a file.",
    )

    @property
    def embedding_memory_bytes(self) -> int | None:
        """Return the requested memory for the embedding tables in bytes; None leaves it to the planner."""
        return None if self.embedding_memory is None else parse_bytes(self.embedding_memory)

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """Return the requested batch sizes, ascending; None leaves them to the planner."""
        return None if self.batch_sizes is None else parse_batch_sizes(self.batch_sizes)


class ClusterRequest(Group, frozen=True, title="Advanced: cluster"):
    """Nodes that serve the request instead of this machine."""

    cluster: str | None = Field(
        default=None,
        min_length=1,
        description="Ray cluster to use instead of this machine: host:port, ray://host:port or auto.",
    )
    cluster_resource: str | None = Field(
        default=None,
        min_length=1,
        description="Use only nodes of --cluster started with this resource (`ray start --resources`).",
    )

    _cluster_names_no_user = field_validator("cluster")(check_names_no_user)


class Billing(StrEnum):
    """Billing unit of time."""

    EXACT = "exact"
    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"


class Pricing(Group, frozen=True, title="Advanced: prices and electricity"):
    """Price of this machine, the billing of its time, and the carbon intensity of its electricity."""

    price_per_hour: float | None = Field(
        default=None,
        gt=0,
        description="Price of this machine per hour; --max-cost and --objective cost need it or --prices.",
    )
    billing: Billing = Field(
        default=Billing.EXACT,
        description="How time is charged: exactly, or per started second, minute or hour.",
    )
    prices: str | None = Field(
        default=None,
        min_length=1,
        description="YAML file of prices by accelerator and machine; if omitted, prices.yaml of Shunter's home.",
    )
    grid: str | None = Field(
        default=None,
        min_length=1,
        description="Carbon intensity in g CO2e per kWh, or a CSV file by hour; --objective carbon needs it.",
    )

    _files_are_paths = field_validator("prices", "grid")(check_is_path)

    @property
    def prices_path(self) -> Path | None:
        """Return the price file to use; None if there is none or the price was given."""
        if self.price_per_hour is not None:
            return None
        if self.prices is not None:
            return Path(self.prices)
        users = Settings().prices_path
        return users if users.is_file() else None
