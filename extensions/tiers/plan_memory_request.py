"""Request of `shunter plan memory`: a pydantic class for the options of the command line and for Python."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from shunter.requests.architecture import ModelRequest
from shunter.requests.groups import Request
from shunter.requests.source import DataRequest


class PlanMemoryRequest(Request, frozen=True, title="Plan of memory"):
    """Model, data and rate for which the number of servers of each kind is planned."""

    source: DataRequest = Field(default=DataRequest(), description="Source of the rows.")
    architecture: ModelRequest = Field(default=ModelRequest(), description="The model.")
    embedding_dim: int = Field(default=64, ge=4, multiple_of=4, description="Numbers per embedding row.")
    rows_times: float = Field(
        default=1.0,
        gt=0,
        le=1e12,
        allow_inf_nan=False,
        description="Rows per table over the distinct values in the data; the skew of the accesses stays the same.",
    )
    batch_size: int = Field(default=65_536, ge=1, description="Samples per step, summed over all servers.")
    samples_per_second: float = Field(
        default=100_000.0,
        gt=0,
        allow_inf_nan=False,
        description="Training rate in samples per second, summed over all servers.",
    )
    servers: Path | None = Field(
        default=None, description="YAML file of servers and their memory tiers; if omitted, five example servers."
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
