"""What a user asks of `shunter serve`: one model for the command line and Python."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from shunter.requests.groups import Group, Request
from shunter.requests.items import IndexChoice
from shunter.requests.sizes import checked_bytes, parse_bytes


class BatchingRequest(Group, frozen=True, title="Requests scored together"):
    """How requests that come at the same time share the work."""

    batch_milliseconds: float = Field(
        default=0.0,
        ge=0,
        le=10_000,
        description="How long a request may wait for others to be scored with it; with 0 only those are that have come "
        "while others were scored.",
    )
    max_batch_rows: int = Field(default=8_192, ge=1, description="Most rows that are scored together.")
    max_waiting_rows: int = Field(
        default=65_536, ge=1, description="Rows that may wait; what comes beyond is answered with 503."
    )


class ServingLimits(Group, frozen=True, title="What a request may be"):
    """Limits that keep one client from the others' way."""

    max_request_rows: int = Field(default=10_000, ge=1, description="Most rows of one request.")
    max_request_mib: float = Field(default=16.0, gt=0, description="Largest body of a request, in MiB.")
    request_seconds: float = Field(
        default=30.0, gt=0, description="Seconds for a client to send a request, and again for it to be scored."
    )
    max_unknown: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Largest share of a column's values in a request that may be unknown or unreadable; beyond it the "
        "answer is 422. If omitted, any share is scored.",
    )


class ServeRequest(Request, frozen=True):
    """A registered or exported model behind HTTP."""

    model: str = Field(
        default="shunter",
        description="Registered model: its name for the champion, NAME@ALIAS or NAME/VERSION; or the folder of an "
        "exported one.",
    )
    items: Path | None = Field(
        default=None,
        description="Of a model that ranks: log whose items are ranked for a user whom a request names, but those that "
        "stand beside the user there; a request gets them with the parameter top.",
    )
    index: IndexChoice = Field(
        default=IndexChoice.AUTO,
        description="With --items: exact compares the scores of all items; approximate searches an index of the item "
        "vectors, whose recall is measured at the start and refused where it is too low; auto does that for large "
        "catalogues alone.",
    )
    increments: Path | None = Field(
        default=None,
        description="Of a version or an exported model: folder that increments of `shunter export --since` are put "
        "into, each in a folder of its own; each that goes on from the model that answers is laid upon it and takes "
        "over.",
    )
    memory: Annotated[str | None, AfterValidator(checked_bytes)] = Field(
        default=None,
        description="Memory for the embedding tables of the model, such as 256MiB: of larger ones the rows that are "
        "asked for most lie in memory, and the rest is read from the file of the weights; the scores are the same bit "
        "by bit. If omitted, all tables lie in memory.",
    )
    port: int = Field(default=8080, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    follow_seconds: float = Field(
        default=15.0,
        ge=0,
        description="Seconds between two looks for another version under the name or alias, or for increments, which "
        "then takes over; 0 keeps the first one.",
    )
    batching: BatchingRequest = Field(default=BatchingRequest(), description="Requests that are scored together.")
    bounds: ServingLimits = Field(default=ServingLimits(), description="What a request may be.")

    @property
    def memory_bytes(self) -> int | None:
        """The memory for the embedding tables; None is what they need."""
        return None if self.memory is None else parse_bytes(self.memory)

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
