"""Request group of placements: the permitted placements, and the extent of exploration."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from shunter.requests.groups import Group
from shunter.requests.sizes import checked_bytes, parse_bytes


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
