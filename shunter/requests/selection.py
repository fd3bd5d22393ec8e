"""Request of `shunter select`: one pydantic model for the command line, the Prefect form and Python."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from shunter.requests.cluster import ClusterRequest
from shunter.requests.job import JobRequest
from shunter.requests.source import PartsRequest

LOCAL_OFFERS = "local"
ALL_OFFERS = "all"


class SelectRequest(JobRequest, frozen=True):
    """Request to choose a placement without training; it may include accelerators that this machine does not have."""

    source: PartsRequest = Field(default=PartsRequest(), description="Source of the rows.")
    nodes: ClusterRequest = Field(default=ClusterRequest(), description="Nodes to choose from.")
    offers: str = Field(
        default=ALL_OFFERS,
        min_length=1,
        description="Accelerators to compare: local, all (also clearly better ones of the catalogue), or names.",
    )
    probe_seconds: float = Field(
        default=15.0,
        ge=0,
        description="Seconds after which no further probe on this machine begins; 0: predict only.",
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...

    def _only_local(self) -> bool:
        return self.offers.strip().lower() == LOCAL_OFFERS
