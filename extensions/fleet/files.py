"""What a user hands in: a file of jobs, whatever its kind, and one that describes the cluster."""

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
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.requests import FleetRequest
from shunter.extensions.fleet.traces.durations import (
    ALIBABA,
    PHILLY,
    TIRESIAS,
    read_alibaba,
    read_philly,
    read_tiresias,
)
from shunter.extensions.fleet.traces.gavel import read_gavel
from shunter.extensions.fleet.traces.pollux import COLUMNS as POLLUX
from shunter.extensions.fleet.traces.pollux import read_pollux
from shunter.extensions.fleet.traces.table import open_text
from shunter.frozen import Frozen
from shunter.hardware.catalogue.design_power import IDLE_SHARE
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.ingestion.sources.guard import check_words
from shunter.requests import TrainRequest
from shunter.validation import clause, sentence
from shunter.yaml_file import read_yaml

CLUSTER_EXAMPLE = "machines: [{name: node1, accelerator: A100, count: 8}]"
JOBS_EXAMPLE = "jobs: [{name: nightly, train: {data: clicks.csv, model: dlrm}}]"
COSTS = ("start_seconds", "checkpoint_seconds", "restore_seconds")
CSV_READERS = ((POLLUX, read_pollux), (PHILLY, read_philly), (TIRESIAS, read_tiresias), (ALIBABA, read_alibaba))
GIB = 2**30
Cost = Seconds | dict[Name, Seconds]


def _countable(asked: int | dict[str, int]) -> int | dict[str, int]:
    for count in asked.values() if isinstance(asked, dict) else (asked,):
        if not 0 < count <= LARGEST_COUNT:
            raise ValueError(f"accelerators is {count}: give a number from 1 to {LARGEST_COUNT:,}")
    return asked


Asked = Annotated[int | dict[Name, int], AfterValidator(_countable)]


class OwnJob(Finite):
    """One training in a file of our own.

    Attributes:
        name: Its name, once in the file.
        train: What `shunter train` would be asked for; checked, and kept for whoever runs it.
        train_seconds: How long it takes by accelerator type on what it asks for, side by side. Without any, what it
            trains tells (`shunter.extensions.fleet.foretell`).
        network_share: By how much a machine's width longer it takes across the network, as a share of that time.
        accelerators: How many it asks for, of one type; or how many of which type, `{cpu: 4, A100: 1}`, and one of each
            that is not named.
        speedups: How much faster it is on other numbers of accelerators than on what it asks for, where it can run so.
        weight: Its share where a policy divides the cluster.
        priority: Jobs of a higher one go first where a policy keeps an order.
        start_seconds: From its first start until its first step; one figure, or one by accelerator type.
        checkpoint_seconds: What saving its state takes when it is stopped, likewise.
        restore_seconds: What taking it up again takes, likewise.
        memory_gib: What it needs on each of its accelerators; where it is left out, what it trains tells.
        server_memory_gib: What each of its processes needs of its server's memory, which all there share; likewise.
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
        """Processes that train it together."""
        return 1 if self.train is None else self.train.training.processes

    def asks(self, accelerator: str) -> int:
        """How many accelerators of a type it asks for."""
        return self._counts.get(accelerator, self._count)

    @property
    def part(self) -> int | None:
        """Accelerators of each of several processes, see `Job.part`; None where one trains."""
        return None if self.processes == 1 else self._count // self.processes

    def part_on(self, accelerator: str) -> int | None:
        """The same on a type."""
        return None if self.processes == 1 else self.asks(accelerator) // self.processes

    @property
    def _counts(self) -> dict[str, int]:
        return self.accelerators if isinstance(self.accelerators, dict) else {}

    @property
    def _count(self) -> int:
        """What it asks for of a type that it does not name."""
        return self.processes if isinstance(self.accelerators, dict) else self.accelerators

    @model_validator(mode="after")
    def _check_processes(self) -> Self:
        uneven = [count for count in (self._count, *self._counts.values()) if count % self.processes]
        if uneven:
            raise ValueError(
                f"job {self.name!r}: {uneven[0]} accelerators cannot be shared evenly by {self.processes} "
                "processes: give a multiple of them"
            )
        if self._counts and self.speedups:
            raise ValueError(
                f"job {self.name!r}: speedups are those on other numbers of accelerators than one for all types: give "
                "accelerators as a number, or leave speedups out"
            )
        return self

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if not self.train_seconds and self.train is None:
            raise ValueError(f"job {self.name!r}: give its train_seconds by accelerator, or under train what it trains")
        return self

    def job(self) -> Job:
        """The same for the scheduler: one iteration is a second on the fastest type."""
        assert self.train_seconds, f"nobody has foretold how long {self.name} takes"
        fastest = min(self.train_seconds.values())
        compute = {name: seconds / fastest for name, seconds in self.train_seconds.items()}
        spread = {
            name: (0.0, self.network_share * seconds / 2, self.network_share * seconds)
            for name, seconds in compute.items()
        }
        left_out = {"train", "train_seconds", "network_share", "speedups", "accelerators", *COSTS}
        shared = self.model_dump(exclude=left_out)
        speedups = {**self.speedups, self._count: 1.0} if self.speedups else {}
        by_type = {name: cost for name in COSTS if isinstance(cost := getattr(self, name), dict)}
        means = {name: fmean(cost.values()) if isinstance(cost, dict) else cost for name, cost in self._costs()}
        work = Iterations(fastest, compute, spread, speedups)
        return Job(
            work=work,
            accelerators=self._count,
            accelerators_on=self._counts,
            costs_on=by_type,
            part=self.part,
            **means,
            **shared,
        )

    def _costs(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name) or 0.0) for name in COSTS]


class OwnJobs(Frozen):
    """A file of our own."""

    jobs: tuple[OwnJob, ...] = Field(min_length=1)


Foretell = Callable[[Sequence[OwnJob], Sequence[str]], Sequence[OwnJob]]
"""Gives jobs that state no times one for each of these accelerator types."""


def read_fleet(request: FleetRequest, foretell: Foretell) -> tuple[list[Job], Cluster]:
    """The jobs and the cluster of a request, checked against each other.

    Args:
        request: Names the files.
        foretell: Gives times to jobs of our own that state none.

    Raises:
        ShunterError: A file cannot be read, or a job can never run.
    """
    check_words(request.jobs)
    check_words(request.cluster)
    cluster = read_cluster(Path(request.cluster))
    if is_own(Path(request.jobs)):
        own = _earliest(read_own_jobs(Path(request.jobs)), request.first_jobs)
        jobs = [job.job() for job in foretell(own, cluster.types)]
    else:
        jobs = _earliest(read_jobs(Path(request.jobs), adaptive=request.adaptive), request.first_jobs)
    check_fit(jobs, cluster)
    return jobs, cluster


def check_fleet(request: FleetRequest) -> tuple[list[Job], Cluster]:
    """The same before anything is foretold: whatever the times, a job has to fit. Its times are not to be used.

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
    if most is None:
        return list(jobs)
    return sorted(jobs, key=lambda job: job.arrival_seconds)[:most]


def is_own(path: Path) -> bool:
    """Whether a file of jobs is one of our own, by its name."""
    return path.suffix in (".yaml", ".yml", ".json")


def read_cluster(path: Path) -> Cluster:
    """The cluster of a file; power and price of a type that it does not give are the catalogue's, where it has them.

    Raises:
        RequestError: The file says something else.
    """
    values = read_yaml(path, "cluster file", CLUSTER_EXAMPLE, RequestError)
    cluster: Cluster = _validated(Cluster, values, f"The cluster file {path}")
    known = {name: found for name in cluster.types if (found := of_catalogue(name)) is not None}
    return cluster.model_copy(update={"accelerators": {**known, **cluster.accelerators}})


def read_jobs(path: Path, *, adaptive: bool = False) -> list[Job]:
    """The jobs of a file: YAML of our own, CSV by its columns, or a trace of Gavel.

    Args:
        path: The file.
        adaptive: Whether trainings of Pollux' workloads may change their number of accelerators and their batch.

    Raises:
        DataError: The file cannot be read, is of no known kind, holds no jobs, or has a broken line.
        RequestError: A job of our own is wrong.
    """
    if is_own(path):
        return [job.job() for job in _stated(read_own_jobs(path), path)]
    try:
        jobs = read_gavel(path) if path.suffix == ".trace" else _read_csv(path, adaptive)
    except OSError as error:
        raise DataError(f"The file of jobs {path} cannot be read ({error.strerror}): give an existing file.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"The file of jobs {path} is no text: give YAML, CSV or a trace of Gavel.") from error
    if not jobs:
        raise DataError(f"The file of jobs {path} holds no jobs that could be run: give one with at least one.")
    return jobs


def read_own_jobs(path: Path) -> tuple[OwnJob, ...]:
    """The jobs of a file of our own.

    Raises:
        RequestError: It cannot be read, or a job is wrong.
    """
    check_words(str(path))
    values = read_yaml(path, "file of jobs", JOBS_EXAMPLE, RequestError)
    return _validated(OwnJobs, values, f"The file of jobs {path}").jobs


def _stated(jobs: Sequence[OwnJob], path: Path) -> Sequence[OwnJob]:
    if silent := next((job for job in jobs if not job.train_seconds), None):
        raise RequestError(f"job {silent.name!r} of {path} states no train_seconds: give them by accelerator")
    return jobs


def check_fit(jobs: list[Job], cluster: Cluster) -> None:
    """Refuse jobs that could never run.

    Raises:
        RequestError: One asks for more than there is, or for types that are not there; or there is a limit on power
            and it is not known what an accelerator draws.
    """
    unknown = [name for name in cluster.types if not cluster.type_of(name).busy_watts]
    if cluster.power_limit_watts is not None and unknown:
        raise RequestError(
            f"power_limit_watts needs what {unknown[0]} draws: give its busy_watts in the cluster's file"
        )
    for job in jobs:
        without = replace(job, server_memory_gib=0.0)
        if job.server_memory_gib and not job.types(cluster) and without.types(cluster):
            raise RequestError(
                f"job {job.name!r} needs {job.server_memory_gib:.3g} GiB of its server's memory for each process, and "
                "the servers that it can use have no room for it: take it out, or describe larger ones (memory_gib of "
                "a machine)"
            )
        if job.memory_gib and not job.types(cluster) and replace(without, memory_gib=0.0).types(cluster):
            raise RequestError(
                f"job {job.name!r} needs {job.memory_gib:g} GiB on each accelerator, and none that it runs on has as "
                "much: take it out, or describe a larger one"
            )
        if not job.types(cluster):
            raise RequestError(
                f"job {job.name!r} runs on {', '.join(job.work.types())}, and the cluster has "
                f"{', '.join(cluster.types)}: name its accelerators as the cluster does"
            )
        cluster.require({name: job.asks(name) for name in job.types(cluster)}, job.name)


def of_catalogue(name: str) -> AcceleratorType | None:
    """An accelerator at work at its design power, at rest at the share that is assumed of GPUs."""
    try:
        row = load_catalogue().find_accelerator(name)
    except RequestError:
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
        f"The file of jobs {path} has columns of no known trace: give Pollux' (name, time, application, num_replicas, "
        "batch_size), Philly's (timestamp, duration, num_gpus), Tiresias' (job_id, num_gpu, submit_time, duration) or "
        "Alibaba's."
    )


def _validated(model: type[Any], values: Mapping[str, Any], told: str) -> Any:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = [clause(fault, model) for fault in error.errors()]
        raise RequestError(sentence([f"{told}: {faults[0]}", *faults[1:3]])) from error
