"""Which placements are open to the choice, and how far it may try what it does not know."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from shunter.requests.groups import Group


class Explore(StrEnum):
    """How far a recurring job may try placements that are not the best known."""

    NEVER = "never"
    BOUNDED = "bounded"
    FREE = "free"


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    """From `64,512`, in ascending order.

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
    """Which placements are open to the choice."""

    batch_sizes: Annotated[str | None, AfterValidator(_checked)] = Field(
        default=None,
        description="Batch sizes to choose from, such as 512,1024; if omitted, powers of two from 64 on, as many as "
        "the data and past runs permit.",
    )
    explore: Explore = Field(
        default=Explore.BOUNDED,
        description="Whether a recurring training may try another batch size where past runs of this data leave room "
        "for it: never; bounded, which stops an exploration at twice the best known and wastes at most a quarter of "
        "what the runs have taken; or free, without the bound on all explorations together.",
    )

    @field_validator("explore", mode="before")
    @classmethod
    def _of_former_requests(cls, value: Any) -> Any:
        """Former requests had a switch, which was off unless asked for."""
        return {True: Explore.FREE, False: Explore.NEVER}.get(value, value) if isinstance(value, bool) else value

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The batch sizes asked for, ascending; None leaves them to the choice."""
        return None if self.batch_sizes is None else parse_batch_sizes(self.batch_sizes)
