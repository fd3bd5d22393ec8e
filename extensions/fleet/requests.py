"""Requests for a fleet: jobs, a cluster, and the policies to compare."""

from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from shunter.requests.groups import Request
from shunter.secrets import check_is_path, check_names_no_user


class FleetRequest(Request, frozen=True, title="Fleet"):
    """Jobs, cluster and policies to simulate."""

    jobs: str = Field(
        default="jobs.yaml",
        min_length=1,
        description="File of the training jobs: YAML, or a trace of Pollux, Philly, Tiresias, Alibaba or Gavel.",
    )
    cluster: str = Field(
        default="cluster.yaml",
        min_length=1,
        description="YAML file of the machines: name, rack, accelerator and count of each.",
    )
    policies: str = Field(
        default="fifo,fifo-skip,srtf,las,tiresias,dally-nowait,dally-consolidated,dally",
        min_length=1,
        description="Scheduling policies to compare, separated by commas; all; or learned, learned:NAME, learned:FILE.",
    )
    first_jobs: int | None = Field(default=None, ge=1, description="Number of jobs to use, the earliest first.")
    adaptive: bool = Field(
        default=False,
        description="Let Pollux jobs change accelerators and batch size, where the policy supports it.",
    )

    _files_are_paths = field_validator("jobs", "cluster")(check_is_path)

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...


class FleetRunRequest(Request, frozen=True, title="Fleet on a live cluster"):
    """Jobs, Ray cluster and policy of a live fleet."""

    jobs: str = Field(
        default="jobs.yaml",
        min_length=1,
        description="YAML file of training jobs, each with name and train (options of `shunter train`).",
    )
    cluster: str = Field(
        default="auto",
        min_length=1,
        description="Ray cluster to use: host:port, ray://host:port or auto.",
    )
    cluster_resource: str | None = Field(
        default=None,
        min_length=1,
        description="Use only nodes that were started with this resource (`ray start --resources`).",
    )
    policy: str = Field(
        default="fifo-skip", min_length=1, description="Scheduling policy, which decides which job runs where."
    )
    checkpoint_seconds: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description="Longest time between two checkpoints of a job, in seconds; at most this is lost if a node dies.",
    )

    _jobs_are_path = field_validator("jobs")(check_is_path)
    _cluster_names_no_user = field_validator("cluster")(check_names_no_user)

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
