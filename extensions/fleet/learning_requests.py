"""What is asked of a policy that is trained: on which jobs and cluster, and what it is to keep little."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from shunter.requests.groups import Request

FleetObjective = Literal["jct", "makespan", "energy", "cost"]


class FleetLearnRequest(Request, frozen=True, title="Learned policy"):
    """Which trainings and which cluster a policy is trained for."""

    jobs: str = Field(
        default="jobs.yaml",
        min_length=1,
        description="File of the trainings to learn from, as for `shunter fleet simulate`; the later third is kept for "
        "the comparison.",
    )
    cluster: str = Field(default="cluster.yaml", min_length=1, description="YAML file of the machines it is to serve.")
    objective: FleetObjective = Field(
        default="jct",
        description="What is to be little: mean time from a job's arrival to its end, makespan, energy or cost.",
    )
    policy: str = Field(
        default="learned",
        pattern=r"^[A-Za-z0-9][\w-]*$",
        max_length=100,
        description="Its name in the home, for `--policies learned:NAME`; the one called learned needs no name there.",
    )
    first_jobs: int | None = Field(default=None, ge=1, description="Only so many of the jobs, the earliest.")
    adaptive: bool = Field(
        default=False, description="Let trainings of Pollux' workloads change their accelerators and batch."
    )
    rounds: int = Field(default=60, ge=6, le=10_000, description="Updates of the networks; each takes a few seconds.")
    seed: int = Field(default=0, ge=0, description="Seed of everything drawn.")
    start_from: str | None = Field(
        default=None,
        min_length=1,
        description="Learned policy to start from, by its name in the home or its file, whatever cluster it was for; "
        "by default the best of some other policies is imitated first.",
    )

    if TYPE_CHECKING:

        def __init__(self, **options: Any) -> None: ...
