"""Prediction of training times that the user's job file does not state: from past runs, or from the cost model.

A time is *measured* if the same training run (data, model, settings, batch size) ran on as many accelerators of that
type in a live fleet before; the median is used. Otherwise it is *estimated*. The estimate is the cost model's step time
at that placement, corrected by all past runs in MLflow, times the number of epochs expected from past runs on the data.
The times to start and to move a job are medians over all jobs of past live fleets, by accelerator type. If no job was
ever stopped, restoring is assumed to take as long as starting. For several processes on CPUs, the cost model gives the
ratio of their step time to that of one process with as many threads. Where the network between the nodes was measured,
the cost model also gives the additional time across it.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shunter.engine.job import ClickJob
from shunter.errors import RequestError
from shunter.extensions.fleet.files import OwnJob, catalogue_row
from shunter.extensions.fleet.job import COSTS
from shunter.extensions.fleet.past import PastJobs, key_of, read_past_jobs
from shunter.frozen import Frozen
from shunter.requests import LOCAL_OFFERS, Explore, TrainRequest

if TYPE_CHECKING:
    from shunter.hardware.types import CollectiveCost, Placement
    from shunter.planner.assessment import Candidate

CPU = "cpu"
GIB = 2**30
LEAST_SECONDS = 1e-3  # of a training run that had ended at its first observation


class Source(StrEnum):
    """Source of a job's training time: stated in the job file, measured in an earlier fleet, or estimated."""

    STATED = "stated"
    MEASURED = "measured"
    ESTIMATED = "estimated"


class PredictedTime(Frozen):
    """Predicted or stated time of a job on the requested number of accelerators of one type.

    Attributes:
        server_memory_gib: Server memory needed by each of the job's processes, stated or predicted; 0 if unknown.
    """

    job: str
    accelerator: str
    seconds: float
    source: Source
    server_memory_gib: float = 0.0


def is_processor(accelerator: str) -> bool:
    """Return True if a type is counted in cores: `cpu`, or `cpu-NAME` in a cluster with several kinds."""
    return accelerator == CPU or accelerator.startswith(f"{CPU}-")


class DurationModel:
    """Predictor of times that jobs do not state. A job that states some times runs only on the stated types.

    Args:
        prepare: Function that returns the training of a job, with its data.
        say: Called with a message for each type whose time cannot be predicted.
        past: Measurements of past fleets; by default read from the tracking store on first use.
        always_memory: If True, predict the memory of a job even if it states its times, for which its data must be
            present.
        network: Function that returns the measured times of collectives between the nodes, called only for jobs with
            several processes. None if there are no nodes.

    Attributes:
        times: Times of all jobs so far, with their sources.
    """

    def __init__(
        self,
        prepare: Callable[[OwnJob], ClickJob],
        say: Callable[[str], None] = lambda sentence: None,
        past: PastJobs | None = None,
        *,
        always_memory: bool = False,
        network: "Callable[[], Sequence[CollectiveCost]] | None" = None,
    ) -> None:
        self._prepare, self._say, self._always_memory, self._network = prepare, say, always_memory, network
        if past is not None:
            self.past = past
        self.times: list[PredictedTime] = []

    def __call__(self, jobs: Sequence[OwnJob], types: Sequence[str]) -> list[OwnJob]:
        """Return the jobs with a time on every type of a cluster with information, and with their memory needs.

        Raises:
            ShunterError: The data of a job cannot be read, or its time cannot be predicted for any type.
        """
        timed = [self._with_times(self._with_memory(job, types), types) for job in jobs]
        return [self._with_costs(self._with_network(job)) for job in timed]

    @cached_property
    def past(self) -> PastJobs:
        """Measurements of past fleets."""
        return read_past_jobs()

    def _with_times(self, own: OwnJob, types: Sequence[str]) -> OwnJob:
        if own.train_seconds:
            found = {name: (seconds, Source.STATED) for name, seconds in own.train_seconds.items()}
        else:
            found = self._predicted(own, types)
        self.times += [
            PredictedTime(
                job=own.name,
                accelerator=name,
                seconds=seconds,
                source=source,
                server_memory_gib=own.server_memory_gib,
            )
            for name, (seconds, source) in found.items()
        ]
        return own.model_copy(update={"train_seconds": {name: seconds for name, (seconds, _) in found.items()}})

    def _with_network(self, own: OwnJob) -> OwnJob:
        """Return the job with a predicted `network_share`, unless the job states it."""
        if own.train is None or own.processes == 1 or self._network is None or "network_share" in own.model_fields_set:
            return own
        from shunter.hardware.types import Placement

        training = self._prepare(own)
        at = Placement(
            accelerator=CPU, threads=own.processes, precision="fp32", batch_size=training.execution.batch_size
        )
        across = self._step_seconds(training, at, own.processes, tuple(self._network()))
        share = across / self._step_seconds(training, at, own.processes) - 1
        return own.model_copy(update={"network_share": max(0.0, share)})

    def _with_memory(self, own: OwnJob, types: Sequence[str]) -> OwnJob:
        """Return the job with the predicted server and GPU memory of each process, unless the job states them."""
        if own.train is None or (own.train_seconds and not self._always_memory):
            return own
        missing = {"server_memory_gib", "memory_gib"} - own.model_fields_set
        predicted = memory_gib(self._prepare(own), types) if missing else {}
        return own.model_copy(update={name: gib for name, gib in predicted.items() if name in missing})

    def _predicted(self, own: OwnJob, types: Sequence[str]) -> dict[str, tuple[float, Source]]:
        assert own.train is not None, f"{own.name} states neither times nor a training run"
        training = self._prepare(own)
        key = key_of(training, own.processes)
        known = {name: self.past.train_seconds(key, name, own.asks(name)) for name in types}
        found = {
            name: (max(seconds, LEAST_SECONDS), Source.MEASURED)
            for name, seconds in known.items()
            if seconds is not None
        }
        if missing := [name for name in types if name not in found]:
            estimates = self._estimated(own, own.train, training, missing)
            found |= {name: (seconds, Source.ESTIMATED) for name, seconds in estimates.items()}
        if not found:
            raise RequestError(
                f"the duration of job {own.name!r} is unknown on "
                f"{', '.join(f'{own.asks(name)} x {name}' for name in types)}: give its train_seconds, "
                "or use the catalogue's names of accelerators"
            )
        if left := [name for name in types if name not in found]:
            self._say(f"{own.name} cannot run on {', '.join(left)}: its duration on this type is unknown.")
        return {name: found[name] for name in types if name in found}

    def _estimated(
        self, own: OwnJob, request: TrainRequest, training: ClickJob, types: Sequence[str]
    ) -> dict[str, float]:
        """Return estimated seconds by type, for types that this machine or the catalogue has."""
        from shunter.planner.choose import choose
        from shunter.planner.decide import NoFeasiblePlacementError
        from shunter.planner.describe import job_size

        known = {name: catalogue_row(name) for name in types if not is_processor(name)}
        rows = {name: row.name for name, row in known.items() if row is not None}
        asked = request.model_copy(update={"explore": Explore.NEVER, "batch_sizes": str(training.execution.batch_size)})
        try:
            table = choose(
                training.dataset,
                asked,
                self._profiles,
                offers=",".join(rows.values()) or LOCAL_OFFERS,
                probe_seconds=0.0,
                history=self._history,
                measure=lambda *_: None,
            ).table
        except NoFeasiblePlacementError as error:
            table = error.table
        candidates = [assessment.candidate for assessment in table]
        passes = training.schedule.max_epochs * (1 + job_size(training.dataset, request).evaluation_share)
        found = {}
        for name in types:
            is_known = name in rows or is_processor(name)
            placed = _placed(candidates, rows.get(name), own.asks(name)) if is_known else None
            if placed is not None:
                found[name] = placed.prediction.epoch_seconds * passes * placed.work_share
                if own.processes > 1 and is_processor(name):  # `network_share` covers exchanges between machines
                    together = self._step_seconds(training, placed.placement, own.processes)
                    found[name] *= together / self._step_seconds(training, placed.placement, 1)
        return found

    def _step_seconds(
        self,
        training: ClickJob,
        placement: "Placement",
        processes: int,
        collectives: "tuple[CollectiveCost, ...] | None" = None,
    ) -> float:
        """Return the predicted seconds per step in processes that share the threads, with the given collectives."""
        from shunter.hardware.cost.cost_model import CostModel
        from shunter.planner.describe import describe

        workload = describe(training.dataset, training.spec, training.hyperparameters)
        profile = next(one for one in self._profiles if one.accelerator.name == placement.accelerator)
        if collectives is not None:
            profile = profile.model_copy(update={"collectives": collectives})
        together = placement.model_copy(update={"processes": processes, "threads": max(placement.threads, processes)})
        return CostModel(profile).predict(workload, together).step_seconds

    def _with_costs(self, own: OwnJob) -> OwnJob:
        """Return the job with the median times of past fleets to start and move jobs, unless the job states them."""
        if own.train is None:
            return own
        unstated = [name for name in COSTS if name not in own.model_fields_set]
        costs: dict[str, Any] = {name: known for name in unstated if (known := self.past.seconds(name))}
        if "restore_seconds" not in {*costs, *own.model_fields_set} and "start_seconds" in costs:
            costs["restore_seconds"] = costs["start_seconds"]  # a restore begins with a start
        return own.model_copy(update=costs)

    @cached_property
    def _history(self) -> Any:
        from shunter.planner.history import read_history

        return read_history()

    @cached_property
    def _profiles(self) -> Any:
        from shunter.engine.profiling.profiles import local_profiles

        return local_profiles(report=self._say)


def memory_gib(training: ClickJob, types: Sequence[str]) -> dict[str, float]:
    """Predict the memory that one process of a training run needs, in GiB (`shunter.hardware.cost.memory_model`).

    The server memory is that of a training run on the CPU; on a GPU the process needs no more server memory than that.
    The GPU memory, if any of the types is a GPU, is that of a training run on the GPU.
    """
    from shunter.engine.memory import process_bytes
    from shunter.hardware.cost.memory_model import memory_on
    from shunter.hardware.types import Placement
    from shunter.planner.describe import describe

    workload = describe(training.dataset, training.spec, training.hyperparameters)
    placement = Placement(accelerator=CPU, threads=1, precision="fp32", batch_size=training.execution.batch_size)
    found = {"server_memory_gib": memory_on(CPU, workload, placement, process_bytes()) / GIB}
    if any(not is_processor(name) for name in types):
        found["memory_gib"] = memory_on("cuda", workload, placement) / GIB
    return found


def _placed(candidates: "Sequence[Candidate]", row: str | None, accelerators: int) -> "Candidate | None":
    """Return the fp32 candidate on this many accelerators of the catalogue row; None if there is none.

    Without a row: the candidate on most cores of this machine's CPU, at most `accelerators`.
    """
    found = [one for one in candidates if one.placement.precision == "fp32" and one.placement.power_limit_watts is None]
    if row is None:  # if the CPU has fewer cores, all are used
        here = [one for one in found if one.is_here and one.placement.device == CPU]
        fitting = [one for one in here if one.placement.threads <= accelerators]
        return max(fitting, key=lambda one: one.placement.threads, default=None)
    there = [one for one in found if not one.is_here and one.placement.accelerator == row]
    return next((one for one in there if one.placement.processes == accelerators), None)
