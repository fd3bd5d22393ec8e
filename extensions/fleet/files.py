"""Reader of the user's files: job files of every supported format, and the cluster file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, ValidationError, model_validator

from shunter.errors import DataError, RequestError
from shunter.extensions.fleet.cluster import (
    LARGEST_COUNT,
    AcceleratorType,
    Cluster,
    Count,
    Finite,
    Name,
    PositiveSeconds,
    Seconds,
)
from shunter.extensions.fleet.job import COSTS, Iterations, Job
from shunter.extensions.fleet.requests import FleetLearnRequest, FleetRequest
from shunter.extensions.fleet.traces.durations import (
    ALIBABA,
    PHILLY,
    TIRESIAS,
    read_alibaba,
    read_msr,
    read_philly,
    read_tiresias,
)
from shunter.extensions.fleet.traces.gavel import read_trace
from shunter.extensions.fleet.traces.pollux import COLUMNS as POLLUX
from shunter.extensions.fleet.traces.pollux import read_pollux
from shunter.extensions.fleet.traces.table import open_text
from shunter.frozen import Frozen
from shunter.hardware.catalogue.rows import IDLE_SHARE, AcceleratorRow, load_catalogue
from shunter.ingestion.sources.guard import check_text
from shunter.requests import TrainRequest
from shunter.validation import clause, sentence
from shunter.yaml_file import read_yaml

CLUSTER_EXAMPLE = "machines: [{name: node1, accelerator: A100, count: 8}]"
JOBS_EXAMPLE = "jobs: [{name: nightly, train: {data: clicks.csv, model: dlrm}}]"
CSV_READERS = ((POLLUX, read_pollux), (PHILLY, read_philly), (TIRESIAS, read_tiresias), (ALIBABA, read_alibaba))
MSR_LOG = "cluster_job_log"  # name of Microsoft Research's file of jobs
GIB = 2**30
Cost = Seconds | dict[Name, Seconds]


def _countable(asked: int | dict[str, int]) -> int | dict[str, int]:
    for count in asked.values() if isinstance(asked, dict) else (asked,):
        if not 0 < count <= LARGEST_COUNT:
            raise ValueError(f"the number of accelerators is {count}: give a number from 1 to {LARGEST_COUNT:,}")
    return asked


Asked = Annotated[int | dict[Name, int], AfterValidator(_countable)]


class OwnJob(Finite):
    """One training job in Shunter's own file format.

    Attributes:
        name: Name of the job, unique in the file.
        train: Options of `shunter train`; checked here, and passed to the process that runs the job.
        train_seconds: Seconds of the training by accelerator type, on the requested number in a consolidated placement.
            Without this, `shunter.extensions.fleet.duration_model` predicts the times.
        network_share: Increase of the time across the network, relative to the time within a machine.
        accelerators: Number of accelerators, of any one type; or a number by type such as `{cpu: 4, A100: 1}`, with one
            per process for types that are not named.
        speedups: Relative speed on other numbers of accelerators than the requested one, if the job can use them.
        weight: Weight of the job under policies that divide the cluster.
        priority: Jobs of higher priority come first under policies that order jobs.
        start_seconds: Seconds from the job's first start to its first step; one number, or one by accelerator
            type.
        checkpoint_seconds: Seconds to save the job's state when it is stopped; one number, or one by type.
        restore_seconds: Seconds to restore the job's state; one number, or one by type.
        memory_gib: Memory needed on each of the job's accelerators; predicted if omitted.
        server_memory_gib: Server memory needed by each of the job's processes, shared by all jobs there; predicted if
            omitted.
    """

    name: Name
    arrival_seconds: Seconds = 0.0
    accelerators: Asked = 1
    train: TrainRequest | None = None
    train_seconds: dict[Name, PositiveSeconds] = Field(default_factory=dict)
    network_share: NonNegativeFloat = 0.0
    speedups: dict[Count, PositiveFloat] = Field(default_factory=dict)
    start_seconds: Cost = 0.0
    checkpoint_seconds: Cost = 0.0
    restore_seconds: Cost = 0.0
    checkpoint_every_seconds: PositiveSeconds = 600.0
    preemptible: bool = True
    weight: PositiveFloat = 1.0
    priority: int = 0
    deadline_seconds: PositiveSeconds | None = None
    memory_gib: NonNegativeFloat = 0.0
    server_memory_gib: NonNegativeFloat = 0.0

    @property
    def processes(self) -> int:
        """Number of processes of the training."""
        return 1 if self.train is None else self.train.training.processes

    def asks(self, accelerator: str) -> int:
        """Return the number of accelerators of a type that the job requests."""
        return self._counts.get(accelerator, self._count)

    @property
    def _counts(self) -> dict[str, int]:
        return self.accelerators if isinstance(self.accelerators, dict) else {}

    @property
    def _count(self) -> int:
        """Number of accelerators that the job needs of each type that the option `accelerators` does not name."""
        return self.processes if isinstance(self.accelerators, dict) else self.accelerators

    @model_validator(mode="after")
    def _check_processes(self) -> Self:
        uneven = [count for count in (self._count, *self._counts.values()) if count % self.processes]
        if uneven:
            raise ValueError(
                f"job {self.name!r}: {uneven[0]} accelerators cannot be divided evenly among {self.processes} "
                "processes: give a multiple of the number of processes"
            )
        if self._counts and self.speedups:
            raise ValueError(
                f"job {self.name!r}: speedups apply when all types need the same number of accelerators: "
                "give accelerators as one number, or leave speedups out"
            )
        return self

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if not self.train_seconds and self.train is None:
            raise ValueError(
                f"job {self.name!r}: give its train_seconds by accelerator, or its training options under `train`"
            )
        return self

    def job(self) -> Job:
        """Return the job for the scheduler, whose iterations take one second each on the fastest type."""
        assert self.train_seconds, f"the duration of {self.name} is not predicted"
        fastest = min(self.train_seconds.values())
        compute = {name: seconds / fastest for name, seconds in self.train_seconds.items()}
        spread = {
            name: (0.0, self.network_share * seconds / 2, self.network_share * seconds)
            for name, seconds in compute.items()
        }
        left_out = {"train", "train_seconds", "network_share", "speedups", "accelerators", *COSTS}
        shared = self.model_dump(exclude=left_out)
        speedups = {**self.speedups, self._count: 1.0} if self.speedups else {}
        costs = {name: getattr(self, name) for name in COSTS}
        by_type = {name: cost for name, cost in costs.items() if isinstance(cost, dict)}
        means = costs | {name: fmean(cost.values() or (0.0,)) for name, cost in by_type.items()}
        return Job(
            work=Iterations(fastest, compute, spread, speedups),
            accelerators=self._count,
            accelerators_on=self._counts,
            costs_on=by_type,
            part=None if self.processes == 1 else self._count // self.processes,
            **means,
            **shared,
        )


class OwnJobs(Frozen):
    """Content of a job file in Shunter's own format."""

    jobs: tuple[OwnJob, ...] = Field(min_length=1)


PredictTimes = Callable[[Sequence[OwnJob], Sequence[str]], Sequence[OwnJob]]
"""Function that adds predicted times, for each of the given accelerator types, to jobs without stated times."""


def read_fleet(request: FleetRequest | FleetLearnRequest, predict_times: PredictTimes) -> tuple[list[Job], Cluster]:
    """Read the jobs and the cluster of a request, and check that they fit.

    Args:
        request: Request that names the files.
        predict_times: Function that predicts the times of jobs without stated times.

    Raises:
        ShunterError: A file cannot be read, or a job can never run.
    """
    check_text(request.jobs)
    check_text(request.cluster)
    cluster = read_cluster(Path(request.cluster))
    if is_own(Path(request.jobs)):
        own = _earliest(read_own_jobs(Path(request.jobs)), request.first_jobs)
        jobs = [job.job() for job in predict_times(own, cluster.types)]
    else:
        jobs = _earliest(read_jobs(Path(request.jobs), adaptive=request.adaptive), request.first_jobs)
    check_fit(jobs, cluster)
    return jobs, cluster


def check_fleet(request: FleetRequest | FleetLearnRequest) -> tuple[list[Job], Cluster]:
    """Read and check the jobs and the cluster; jobs without a stated time get 1 s as a placeholder.

    Raises:
        ShunterError: A file cannot be read, or a job can never run.
    """
    return read_fleet(request, _of_any_length)


def _of_any_length(jobs: Sequence[OwnJob], types: Sequence[str]) -> list[OwnJob]:
    return [
        job if job.train_seconds else job.model_copy(update={"train_seconds": dict.fromkeys(types, 1.0)})
        for job in jobs
    ]


def _earliest(jobs: Sequence[Any], most: int | None) -> list[Any]:
    return list(jobs) if most is None else sorted(jobs, key=lambda job: job.arrival_seconds)[:most]


def is_own(path: Path) -> bool:
    """Return True if a job file is in Shunter's own format, by its file name."""
    return path.suffix in (".yaml", ".yml", ".json") and path.stem != MSR_LOG


def read_cluster(path: Path) -> Cluster:
    """Read the cluster from a file; missing power and price of a type come from the catalogue if it has them.

    Raises:
        RequestError: The file is not a valid cluster file.
    """
    values = read_yaml(path, "cluster file", CLUSTER_EXAMPLE, RequestError)
    cluster: Cluster = _validated(Cluster, values, f"The cluster file {path}")
    known = {name: found for name in cluster.types if (found := of_catalogue(name)) is not None}
    return cluster.model_copy(update={"accelerators": {**known, **cluster.accelerators}})


def read_jobs(path: Path, *, adaptive: bool = False) -> list[Job]:
    """Read the jobs of a trace: CSV by its columns, a trace of Gavel or Shockwave, or MSR's log.

    Args:
        path: Job file.
        adaptive: If True, training runs of Pollux' workloads may change their number of accelerators and batch size.

    Raises:
        DataError: The file cannot be read, has an unknown format or no jobs, or has an invalid line.
    """
    try:
        if path.stem == MSR_LOG:
            jobs = read_msr(path)
        else:
            jobs = read_trace(path) if path.suffix == ".trace" else _read_csv(path, adaptive)
    except OSError as error:
        raise DataError(f"The file of jobs {path} cannot be read ({error.strerror}): give an existing file.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"The file of jobs {path} is not a text file: give YAML, CSV or a Gavel trace.") from error
    if not jobs:
        raise DataError(f"The file of jobs {path} has no job that can run: give a file with at least one job.")
    return jobs


def read_own_jobs(path: Path) -> tuple[OwnJob, ...]:
    """Read the jobs of a file in Shunter's own format.

    Raises:
        RequestError: The file cannot be read, or a job is invalid.
    """
    check_text(str(path))
    values = read_yaml(path, "file of jobs", JOBS_EXAMPLE, RequestError)
    return _validated(OwnJobs, values, f"The file of jobs {path}").jobs


def check_fit(jobs: list[Job], cluster: Cluster) -> None:
    """Raise if a job could never run on the cluster.

    Raises:
        RequestError: A job needs more accelerators than the cluster has, or types that it lacks; or the cluster has a
            power limit but the power of a type is unknown.
    """
    unknown = [name for name in cluster.types if not cluster.type_of(name).busy_watts]
    if cluster.power_limit_watts is not None and unknown:
        raise RequestError(
            f"power_limit_watts needs the power of {unknown[0]}: give its busy_watts in the cluster's file"
        )
    for job in jobs:
        without = replace(job, server_memory_gib=0.0)
        if job.server_memory_gib and not job.types(cluster) and without.types(cluster):
            raise RequestError(
                f"job {job.name!r} needs {job.server_memory_gib:.3g} GiB of server memory for each "
                "process, and no suitable server has as much: remove the job, or raise memory_gib of a "
                "machine"
            )
        if job.memory_gib and not job.types(cluster) and replace(without, memory_gib=0.0).types(cluster):
            raise RequestError(
                f"job {job.name!r} needs {job.memory_gib:g} GiB of accelerator memory, and no suitable "
                "accelerator has as much: remove the job, or describe a larger accelerator"
            )
        if not job.types(cluster):
            raise RequestError(
                f"job {job.name!r} runs on {', '.join(job.work.types())}, but the cluster has "
                f"{', '.join(cluster.types)}: use the names of accelerators in the cluster's file"
            )
        cluster.require({name: job.asks(name) for name in job.types(cluster)}, job.name)


def catalogue_row(name: str) -> AcceleratorRow | None:
    """Return the catalogue's row of an accelerator type; None if the catalogue lacks it."""
    try:
        return load_catalogue().find_accelerator(name)
    except RequestError:
        return None


def of_catalogue(name: str) -> AcceleratorType | None:
    """Return the accelerator type of a name in the hardware catalogue; None if the catalogue lacks the name.

    Busy power is the design power (TDP); idle power is the share `IDLE_SHARE` of it.
    """
    row = catalogue_row(name)
    if row is None:
        return None
    watts = row.tdp_watts or 0.0
    return AcceleratorType(
        idle_watts=IDLE_SHARE * watts,
        busy_watts=watts,
        price_per_hour=row.price_per_hour or 0.0,
        memory_gib=row.memory_bytes / GIB,
    )


def _read_csv(path: Path, adaptive: bool) -> list[Job]:
    with open_text(path) as file:
        columns = set(file.readline().strip().split(","))
    for fields, reader in CSV_READERS:
        if columns.issuperset(fields):
            return read_pollux(path, adaptive=adaptive) if reader is read_pollux else reader(path)
    raise DataError(
        f"The columns of the job file {path} match no known trace format: give those of Pollux (name, "
        "time, application, num_replicas, batch_size), Philly (timestamp, duration, num_gpus), Tiresias "
        "(job_id, num_gpu, submit_time, duration) or Alibaba."
    )


def _validated(model: type[Any], values: Mapping[str, Any], told: str) -> Any:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = [clause(fault, model) for fault in error.errors()]
        raise RequestError(sentence([f"{told}: {faults[0]}", *faults[1:3]])) from error
