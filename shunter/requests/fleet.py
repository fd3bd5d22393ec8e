"""What is asked of a fleet: jobs, a cluster, and the policies to compare."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from shunter.requests.groups import Request


class FleetRequest(Request, frozen=True, title="Fleet"):
    """Which trainings share which cluster, under which policies."""

    jobs: str = Field(
        default="jobs.yaml",
        min_length=1,
        description="File of the trainings: YAML with train_seconds by accelerator, or a trace of Pollux, Philly, "
        "Tiresias, Alibaba (CSV) or Gavel (.trace).",
    )
    cluster: str = Field(
        default="cluster.yaml",
        min_length=1,
        description="YAML file of the machines: name, rack, accelerator and count of each; their power and price, the "
        "network and outages if known.",
    )
    policies: str = Field(
        default="fifo,fifo-skip,srtf,las,tiresias,dally-nowait,dally-consolidated,dally",
        min_length=1,
        description="Policies to compare, with commas between; all for every one.",
    )
    first_jobs: int | None = Field(default=None, ge=1, description="Only so many of the jobs, the earliest.")
    adaptive: bool = Field(
        default=False,
        description="Let trainings of Pollux' workloads change their accelerators and batch, under policies that can.",
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
