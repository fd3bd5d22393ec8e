"""Request to train a policy: jobs, cluster and objective."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from shunter.requests.groups import Request
from shunter.secrets import check_is_path

FleetObjective = Literal["jct", "makespan", "energy", "cost"]


class FleetLearnRequest(Request, frozen=True, title="Learned policy"):
    """Jobs, cluster and objective of a policy to train."""

    jobs: str = Field(
        default="jobs.yaml",
        min_length=1,
        description="File of the training jobs to learn from, as for `shunter fleet simulate`.",
    )
    cluster: str = Field(
        default="cluster.yaml", min_length=1, description="YAML file of the machines of the cluster to schedule."
    )
    objective: FleetObjective = Field(
        default="jct",
        description="What to minimise: jct (mean time from arrival to end), makespan, energy or cost.",
    )
    policy: str = Field(
        default="learned",
        pattern=r"^[A-Za-z0-9][\w-]*$",
        max_length=100,
        description="Name of the learned policy, for `--policies learned:NAME`.",
    )
    first_jobs: int | None = Field(default=None, ge=1, description="Number of jobs to use, the earliest first.")
    adaptive: bool = Field(
        default=False, description="Let Pollux jobs change their number of accelerators and batch size."
    )
    rounds: int = Field(
        default=60, ge=6, le=10_000, description="Number of updates of the policy networks; each takes a few seconds."
    )
    seed: int = Field(default=0, ge=0, description="Seed of all random draws.")
    start_from: str | None = Field(
        default=None,
        min_length=1,
        description="Learned policy to start from, by name or file; if omitted, imitate a built-in policy.",
    )

    _files_are_paths = field_validator("jobs", "cluster", "start_from")(check_is_path)

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
