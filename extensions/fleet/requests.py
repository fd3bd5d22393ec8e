"""Requests for a fleet: jobs, a cluster, and the policies to compare, to run or to train; and example files of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
    objective: Literal["jct", "makespan", "energy", "cost"] = Field(
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


EXAMPLES = {
    "jobs.yaml": """# Training jobs: seconds on each type of accelerator, and when each arrives.
jobs:
- {name: nightly, train_seconds: {V100: 3600, T4: 9000}, accelerators: 2}
- {name: large, arrival_seconds: 300, train_seconds: {V100: 7200}, accelerators: 8, network_share: 0.3}
- {name: small, arrival_seconds: 400, train_seconds: {V100: 600, T4: 900}}
""",
    "cluster.yaml": """# Machines: rack, type and number of accelerators of each.
machines:
- {name: v1, rack: a, accelerator: V100, count: 4}
- {name: v2, rack: a, accelerator: V100, count: 4}
- {name: t1, rack: b, accelerator: T4, count: 4}
""",
}


def write_examples(folder: Path) -> None:
    """Write the example files of the default jobs and cluster into a folder; existing files are not overwritten.

    Raises:
        OSError: A file cannot be written.
    """
    for name, text in EXAMPLES.items():
        if not (folder / name).exists():
            (folder / name).write_text(text, encoding="utf-8")
