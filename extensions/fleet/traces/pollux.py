"""Reader of the workloads of Pollux' simulator: jobs with the accelerators and the batch size that users requested.

Each job trains one of the applications that Pollux (OSDI 2021) measured at many placements and batch sizes.

Progress is counted in steps of the smallest batch. A larger batch makes more progress per step but less per sample,
depending on the gradient noise of the epoch: `(variance + square) / (variance / scale + square)`, where `variance` is
that of the gradient, `square` its squared norm, and `scale` the ratio of the batch to the smallest batch.
"""

import csv
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path

import numpy as np

from shunter.errors import DataError
from shunter.extensions.fleet.job import Conditions, Job
from shunter.extensions.fleet.traces.table import count, folder_name, name, rows, seconds
from shunter.ingestion.sources.guard import check_text

EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
LARGEST_LOCAL_BATCH = {"yolov3": 8}  # per accelerator; by default the largest measured one
NEVER_SPREAD = ("ncf",)  # slower on two accelerators than on one
MOST_MACHINES = 16  # largest number of machines in the measurements
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # numbers of accelerators that an elastic job may get


class Application:
    """Measurements of one application: seconds per step by placement, and progress by batch size.

    Args:
        directory: Folder with `placements.csv`, `scalability.csv` and `validation-BATCH.csv`.

    Attributes:
        rates_by_epoch: Cache that all jobs share: progress per second by epoch, and seconds from each epoch to the end.

    Raises:
        DataError: A file is missing.
    """

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self._directory = directory
        files = sorted((int(path.stem.split("-")[1]), path) for path in directory.glob("validation-*.csv"))
        if not files or not (directory / "placements.csv").exists():
            raise DataError(
                f"The folder {directory} holds no measurements of {self.name!r}: add Pollux' "
                "placements.csv, scalability.csv and validation-*.csv"
            )
        self._validation = {batch: _columns(path) for batch, path in files}
        self.batches = list(self._validation)
        self.epochs = EPOCHS.get(self.name) or min(len(table["progress"]) for table in self._validation.values())
        self.boundaries = [
            min(table["progress"][epoch] for table in self._validation.values()) for epoch in range(self.epochs)
        ]
        self.smallest_batch, self.largest_batch = self.batches[0], self.batches[-1]
        self._steps: dict[tuple[tuple[int, ...], int], tuple[float, float]] = {}
        self._gains: dict[tuple[int, int], float] = {}
        self.rates_by_epoch: dict[tuple[object, ...], tuple[list[float], list[float]]] = {}

    @cached_property
    def largest_local(self) -> int:
        """Largest number of samples that one accelerator processes at once."""
        measured = max(batch for rows in self._placements.values() for batch, *_ in rows)
        return LARGEST_LOCAL_BATCH.get(self.name, int(measured))

    @cached_property
    def smallest_local(self) -> int:
        """Smallest number of samples per accelerator in the measurements."""
        return int(min(batch for rows in self._placements.values() for batch, *_ in rows))

    def goodput(self, epoch: int, counts: tuple[int, ...], batch: int) -> float:
        """Return the progress per second in an epoch, for these numbers of accelerators on each machine.

        Each accelerator processes `local` samples `accumulations` + 1 times per step: gradients are accumulated if one
        accelerator cannot hold its part of the batch.
        """
        accelerators = sum(counts)
        part = ceil(batch / accelerators - 1e-8)
        accumulations = ceil(part / self.largest_local - 1e-8) - 1
        if accelerators == 1 and batch > self.smallest_batch:
            accumulations = max(1, accumulations)
        passes = accelerators * (accumulations + 1)
        local = min(ceil(part / (accumulations + 1) - 1e-8), self.largest_batch // passes)
        step, sync = self.step_seconds(counts, local)
        return self._gain(passes * local, epoch) / (step + (step - sync) * accumulations)

    def step_seconds(self, counts: tuple[int, ...], local: int) -> tuple[float, float]:
        """Return the seconds of a step and of its communication, interpolated between the measurements."""
        rotated = min(counts[i:] + counts[:i] for i in range(len(counts)))
        if (rotated, local) not in self._steps:
            measured = self._placements.get("".join(map(str, rotated)))
            if measured is None:
                step, sync = self._surface([min(len(rotated), MOST_MACHINES), sum(rotated), local])[0]
            else:
                from scipy.interpolate import interp1d

                rows = np.array(measured)
                step, sync = interp1d(rows[:, 0], rows[:, 1:], axis=0)(local)
            self._steps[rotated, local] = float(step), float(sync)
        return self._steps[rotated, local]

    def _gain(self, batch: int, epoch: int) -> float:
        """Return the progress of one step with this batch, in steps of the smallest batch."""
        if (batch, epoch) not in self._gains:
            upper = next((one for one in self.batches if one >= batch), self.largest_batch)
            lower = max((one for one in self.batches if one <= batch), default=self.smallest_batch)
            weight = 0.0 if upper == lower else (batch - lower) / (upper - lower)
            square, variance = (
                (1 - weight) * self._validation[lower][name][epoch] + weight * self._validation[upper][name][epoch]
                for name in ("grad_sqr", "grad_var")
            )
            scale = batch / self.smallest_batch
            self._gains[batch, epoch] = (variance + square) / (variance / scale + square)
        return self._gains[batch, epoch]

    @cached_property
    def _placements(self) -> dict[str, list[tuple[float, float, float]]]:
        """Return rows of local batch, seconds per step and of its communication, by placement such as `44`."""
        rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        with (self._directory / "placements.csv").open() as file:
            for row in csv.DictReader(file):
                rows[row["placement"]].append(
                    (float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"]))
                )
        return dict(rows)

    @cached_property
    def _surface(self) -> Callable[[list[float]], np.ndarray]:
        """Return an interpolation of unmeasured placements over machines, accelerators and local batch."""
        from scipy.interpolate import LinearNDInterpolator
        from threadpoolctl import threadpool_limits

        groups: dict[tuple[float, float, float], list[tuple[float, float]]] = defaultdict(list)
        for placement, measured in self._placements.items():
            counts = [int(digit) for digit in placement]
            for local, step, sync in measured:
                groups[len(counts), sum(counts), local].append((step, sync))
        points = [list(key) for key in sorted(groups)]
        values = [np.mean(groups[key], axis=0) for key in sorted(groups)]
        table = _columns(self._directory / "scalability.csv")
        for i, nodes in enumerate(table["num_nodes"]):
            points.append([nodes, table["num_replicas"][i], table["local_bsz"][i]])
            values.append(np.array([table["step_time"][i], table["sync_time"][i]]))
        surface = LinearNDInterpolator(np.array(points), np.array(values))
        with threadpool_limits(1, user_api="blas"):  # thousands of 3 x 3 matrices: waking threads takes longer
            surface(points[0])  # the first call solves them
        return surface


@dataclass(frozen=True)
class ElasticWork:
    """Training of an application to its last epoch, on any number of accelerators.

    Attributes:
        application: Measurements of the application.
        batch: Samples per step; None to use the batch with the most progress on its accelerators.
        whole_seconds: If True, epochs end at whole seconds, as in the simulator published with Pollux.
    """

    application: Application
    batch: int | None
    whole_seconds: bool = True

    def types(self) -> tuple[str, ...]:
        """Return the accelerator types of the job, see `Work.types`; the measurements of one type are used for all."""
        return ()

    def counts(self, asked: int) -> tuple[int, ...]:
        """Return the possible numbers of accelerators, see `Work.counts`; a fixed batch size permits only one."""
        if self.batch is not None:
            return (asked,)
        most = self.application.largest_batch // self.application.smallest_local
        if self.application.name in NEVER_SPREAD:
            most = 1
        return tuple(count for count in COUNTS if count <= most)

    def seconds_left(self, done: float, conditions: Conditions) -> float:
        """Return the remaining seconds of the work; see `Work.seconds_left`."""
        epoch = self._epoch(done)
        if epoch >= self.application.epochs:
            return 0.0
        rates, later = self._pace(conditions)
        return self._seconds((self.application.boundaries[epoch] - done) / rates[epoch]) + later[epoch + 1]

    def advance(self, done: float, seconds: float, conditions: Conditions) -> float:
        """Advance the work by some seconds; see `Work.advance`."""
        rates, _ = self._pace(conditions)
        for epoch in range(self._epoch(done), self.application.epochs):
            end = self.application.boundaries[epoch]
            if done + rates[epoch] * seconds < end:
                return done + rates[epoch] * seconds
            seconds = max(seconds - self._seconds((end - done) / rates[epoch]), 0.0)
            done = end
        return done

    def _pace(self, conditions: Conditions) -> tuple[list[float], list[float]]:
        """Return the progress per second by epoch, and the seconds from the start of each epoch to the end."""
        counts, speed, application = conditions.counts, conditions.speed, self.application
        asked = (self.batch, counts, speed, self.whole_seconds)
        if asked not in application.rates_by_epoch:
            rates = [self._goodput(epoch, counts) * speed for epoch in range(application.epochs)]
            begins = [0.0, *application.boundaries]
            later = [0.0] * (application.epochs + 1)
            for epoch in reversed(range(application.epochs)):
                taken = (begins[epoch + 1] - begins[epoch]) / rates[epoch]
                later[epoch] = later[epoch + 1] + self._seconds(taken)
            application.rates_by_epoch[asked] = rates, later
        return application.rates_by_epoch[asked]

    def _goodput(self, epoch: int, counts: tuple[int, ...]) -> float:
        """Return the progress per second with the requested batch size, or with the best validated batch size."""
        application = self.application
        if self.batch is not None:
            return application.goodput(epoch, counts, self.batch)
        least = sum(counts) * application.smallest_local
        batches = [batch for batch in application.batches if batch >= least] or [least]
        return max(application.goodput(epoch, counts, batch) for batch in batches)

    def _seconds(self, taken: float) -> float:
        return float(round(taken)) if self.whole_seconds else taken

    def _epoch(self, done: float) -> int:
        return bisect_right(self.application.boundaries, done)


def _columns(path: Path) -> dict[str, list[float]]:
    """Read the columns of a CSV file of numbers."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


RESCALE_SECONDS = 30.0
COLUMNS = {"name": name, "time": seconds, "application": folder_name, "num_replicas": count, "batch_size": count}


def read_pollux(path: Path, *, adaptive: bool = False) -> list[Job]:
    """Read the jobs of a workload; the measurements are in `traces/` beside its folder.

    Args:
        path: CSV file with columns name, time, application, num_replicas and batch_size.
        adaptive: If True, the batch follows the placement instead of the request.

    Raises:
        DataError: A line is invalid, or an application has no measurements.
        RequestError: The measurements are outside the folders that a request may read.
    """
    applications: dict[str, Application] = {}
    jobs = []
    for line, row in rows(path, COLUMNS):
        application = row["application"]
        if application not in applications:
            directory = path.parent.parent / "traces" / application
            check_text(str(directory))
            if not directory.is_dir():
                raise DataError(
                    f"line {line} of {path}: application is {application!r}, and {directory} has no measurements of it"
                )
            applications[application] = Application(directory)
        jobs.append(
            Job(
                name=row["name"],
                arrival_seconds=row["time"],
                accelerators=row["num_replicas"],
                work=ElasticWork(applications[application], None if adaptive else row["batch_size"]),
                start_seconds=RESCALE_SECONDS,
                restore_seconds=RESCALE_SECONDS,
            )
        )
    return jobs
