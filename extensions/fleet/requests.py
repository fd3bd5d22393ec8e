"""What is asked of a fleet: jobs, a cluster, and the policies to compare."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from shunter.requests.groups import Request


class FleetRequest(Request, frozen=True, title="Fleet"):
    """Which trainings share which cluster, under which policies."""

    jobs: str = Field(
        default="jobs.yaml",
        min_length=1,
        description="File of the trainings: YAML with what each trains, or its train_seconds by accelerator; or a "
        "trace of Pollux, Philly, Tiresias, Alibaba (CSV) or Gavel (.trace).",
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
        description="Policies to compare, with commas between; all for every one that needs no training; learned, "
        "learned:NAME or learned:FILE for one that `shunter fleet learn` has trained.",
    )
    first_jobs: int | None = Field(default=None, ge=1, description="Only so many of the jobs, the earliest.")
    adaptive: bool = Field(
        default=False,
        description="Let trainings of Pollux' workloads change their accelerators and batch, under policies that can.",
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...


class FleetRunRequest(Request, frozen=True, title="Fleet on a live cluster"):
    """Which trainings are run on which Ray cluster, under which policy."""

    jobs: str = Field(
        default="jobs.yaml",
        min_length=1,
        description="YAML file of the trainings: name and train (data, model and so on, as for the command train) of "
        "each; train_seconds by accelerator where they are not to be predicted.",
    )
    cluster: str = Field(
        default="auto",
        min_length=1,
        description="Ray cluster that trains: host:port, ray://host:port, or auto for the one this machine is part of; "
        "Shunter must be installed on its nodes.",
    )
    cluster_resource: str | None = Field(
        default=None,
        min_length=1,
        description="Only nodes that were started with this resource (`ray start --resources`).",
    )
    policy: str = Field(default="fifo-skip", min_length=1, description="Policy that decides who runs where.")
    checkpoint_seconds: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description="Longest time between two checkpoints of a training: what a node that dies costs at most.",
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
