"""Request of `shunter plan memory`: one model for the command line and Python."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from shunter.requests.architecture import ModelRequest
from shunter.requests.groups import Request
from shunter.requests.source import DataRequest


class PlanMemoryRequest(Request, frozen=True, title="Plan of memory"):
    """On how many servers of each kind the tables of a model have room, and train as fast as is asked."""

    source: DataRequest = Field(default=DataRequest(), description="Where the rows come from.")
    architecture: ModelRequest = Field(default=ModelRequest(), description="The model.")
    embedding_dim: int = Field(default=64, ge=4, multiple_of=4, description="Numbers of an embedding row.")
    rows_times: float = Field(
        default=1.0,
        gt=0,
        le=1e12,
        allow_inf_nan=False,
        description="How many times as many rows the tables shall have as the data has values, as skewed as these are.",
    )
    batch_size: int = Field(default=65_536, ge=1, description="Samples of a step, of all servers together.")
    samples_per_second: float = Field(
        default=100_000.0, gt=0, allow_inf_nan=False, description="Rate that the servers must reach together."
    )
    servers: Path | None = Field(
        default=None, description="YAML file of servers and their tiers; if omitted, five kinds that are assumed."
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
