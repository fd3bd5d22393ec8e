"""Request of `shunter serve`: one pydantic model for the command line and Python."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from shunter.requests.effort import IndexChoice
from shunter.requests.groups import Group, Request
from shunter.validation import checked_bytes, parse_bytes


class BatchingRequest(Group, frozen=True, title="Requests scored together"):
    """Batching of requests that arrive at the same time."""

    batch_milliseconds: float = Field(
        default=0.0,
        ge=0,
        le=10_000,
        description="Longest time that a request waits for others to be scored with it, in milliseconds; 0: no wait.",
    )
    max_batch_rows: int = Field(default=8_192, ge=1, description="Maximum number of rows that are scored together.")
    max_waiting_rows: int = Field(
        default=65_536, ge=1, description="Maximum number of rows in the queue; further requests are answered with 503."
    )


class ServingLimits(Group, frozen=True, title="Limits of a request"):
    """Limits of requests, so that one client cannot block the others."""

    max_request_rows: int = Field(default=10_000, ge=1, description="Maximum number of rows of one request.")
    max_request_mib: float = Field(default=16.0, gt=0, description="Maximum size of a request body, in MiB.")
    request_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Maximum time to receive a request, and also to score it, in seconds.",
    )
    max_unknown: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Maximum share of unknown or unreadable values per column; above it the answer is 422.",
    )


class ServeRequest(Request, frozen=True):
    """Request to serve a registered or exported model over HTTP."""

    model: str = Field(
        default="",
        description="Registered model (NAME, NAME@ALIAS, NAME/VERSION) or exported folder; if omitted, the only model.",
    )
    items: Path | None = Field(
        default=None,
        description="Log whose items a ranking model ranks for the users in a request.",
    )
    index: IndexChoice = Field(
        default=IndexChoice.AUTO,
        description="With --items: exact scores, approximate index, or auto (approximate for large catalogues).",
    )
    increments: Path | None = Field(
        default=None,
        description="Folder watched for increments of `shunter export --since`, which are applied as they arrive.",
    )
    memory: Annotated[str | None, AfterValidator(checked_bytes)] = Field(
        default=None,
        description="Memory for the embedding tables, such as 256MiB; other rows are read from a file.",
    )
    port: int = Field(default=8080, ge=0, le=65_535, description="Port to listen on; 0 chooses a free port.")
    follow_seconds: float = Field(
        default=15.0,
        ge=0,
        description="Seconds between checks for a newer version or increment; 0 never checks.",
    )
    batching: BatchingRequest = Field(
        default=BatchingRequest(), description="Batching of requests that arrive at the same time."
    )
    bounds: ServingLimits = Field(default=ServingLimits(), description="Limits on requests.")

    @property
    def memory_bytes(self) -> int | None:
        """Memory for the embedding tables in bytes; None: as much as the tables need."""
        return None if self.memory is None else parse_bytes(self.memory)

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
