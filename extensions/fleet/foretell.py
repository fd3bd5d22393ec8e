"""How long trainings of our own take where, when nobody states it: as measured before, else as the selector estimates.

A time is *measured* if this very training (data, model, settings, batch size) ran on as many accelerators of that type
in a live fleet before: the median of those. Else it is *estimated* by the selector: the cost model's step at that
placement, corrected by all past runs in MLflow, times the epochs that past runs of the data lead to expect. What
starting and moving takes is the median of what past live fleets measured, by type, whatever they trained; where none
was stopped yet, going on is taken to take what starting takes. Of several processes on processors the cost model says
how many times as long their steps take as those of one with as many threads, and, where the network between the nodes
has been measured, how much longer across it.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shunter.engine.job import ClickJob
from shunter.errors import RequestError
from shunter.extensions.fleet.files import OwnJob
from shunter.extensions.fleet.own_training import key_of
from shunter.extensions.fleet.past import PastJobs, read_past_jobs
from shunter.frozen import Frozen
from shunter.hardware.catalogue.rows import load_catalogue
from shunter.requests import LOCAL_OFFERS, Explore, TrainRequest

if TYPE_CHECKING:
    from shunter.hardware.types import CollectiveCost, Placement
    from shunter.planner.assessment import Candidate

CPU = "cpu"
COSTS = ("start_seconds", "checkpoint_seconds", "restore_seconds")
GIB = 2**30
Prepare = Callable[[OwnJob], ClickJob]
"""The training of a job that has one, with its data."""


LEAST_SECONDS = 1e-3  # of a training that had ended when it was first seen to train


class Source(StrEnum):
    """Where a time comes from."""

    STATED = "stated"
    MEASURED = "measured"
    ESTIMATED = "estimated"


class ForetoldTime(Frozen):
    """How long a job takes on what it asks for, of one type.

    Attributes:
        server_memory_gib: What each of its processes needs of its server's memory, stated or predicted; 0 if unknown.
    """

    job: str
    accelerator: str
    seconds: float
    source: Source
    server_memory_gib: float = 0.0


def is_processor(accelerator: str) -> bool:
    """Whether a type is counted in cores: `cpu`, or `cpu-NAME` where a cluster has several kinds."""
    return accelerator == CPU or accelerator.startswith(f"{CPU}-")


class Foreteller:
    """Gives jobs of our own the times that they do not state; a job that states any runs on those types alone.

    Args:
        prepare: Makes the training of a job.
        say: Told in sentences what is left out.
        past: What past fleets measured; by default read from the tracking store when it is first needed.
        always_memory: Whether what a job needs of memory is foreseen even if it states its times, for which its data
            have to be there.
        network: Tells what collectives between the nodes take, as measured; asked only where a job has several
            processes. None where there are no nodes.

    Attributes:
        times: Where each time came from, of all jobs that were asked about.
    """

    def __init__(
        self,
        prepare: Prepare,
        say: Callable[[str], None] = lambda sentence: None,
        past: PastJobs | None = None,
        *,
        always_memory: bool = False,
        network: "Callable[[], Sequence[CollectiveCost]] | None" = None,
    ) -> None:
        self._prepare, self._say, self._always_memory = prepare, say, always_memory
        self._network = network
        if past is not None:
            self.past = past
        self.times: list[ForetoldTime] = []

    def __call__(self, jobs: Sequence[OwnJob], types: Sequence[str]) -> list[OwnJob]:
        """The jobs with a time on every type that something is known of, and what memory they need.

        Args:
            jobs: Jobs of our own.
            types: Accelerator types of the cluster.

        Raises:
            ShunterError: The data of a job cannot be read, or nothing tells how long it takes anywhere.
        """
        timed = [self._with_times(self._with_memory(job, types), types) for job in jobs]
        return [self._with_costs(self._with_network(job)) for job in timed]

    @cached_property
    def past(self) -> PastJobs:
        """What past fleets measured."""
        return read_past_jobs()

    def _with_times(self, own: OwnJob, types: Sequence[str]) -> OwnJob:
        if own.train_seconds:
            found = {name: (seconds, Source.STATED) for name, seconds in own.train_seconds.items()}
        else:
            found = self._predicted(own, types)
        self.times += [
            ForetoldTime(
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
        """With how much longer its steps take across the network, where the job does not state it."""
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
        """With what each of its processes needs of its server, and of its GPU, where the job does not state it."""
        if own.train is None or (own.train_seconds and not self._always_memory):
            return own
        missing = {"server_memory_gib", "memory_gib"} - own.model_fields_set
        foreseen = memory_gib(self._prepare(own), types) if missing else {}
        return own.model_copy(update={name: gib for name, gib in foreseen.items() if name in missing})

    def _predicted(self, own: OwnJob, types: Sequence[str]) -> dict[str, tuple[float, Source]]:
        assert own.train is not None, f"{own.name} states neither times nor a training"
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
                f"nothing tells how long job {own.name!r} takes on "
                f"{', '.join(f'{own.asks(name)} x {name}' for name in types)}: give its train_seconds, or name "
                "accelerators as the catalogue does"
            )
        if left := [name for name in types if name not in found]:
            self._say(f"{own.name} is not run on {', '.join(left)}: nothing tells how long it takes there.")
        return {name: found[name] for name in types if name in found}

    def _estimated(
        self, own: OwnJob, request: TrainRequest, training: ClickJob, types: Sequence[str]
    ) -> dict[str, float]:
        """Seconds by type, of those that this machine or the catalogue has."""
        from shunter.planner.choose import choose
        from shunter.planner.decide import NoFeasiblePlacementError
        from shunter.planner.describe import job_size

        rows = {name: row for name in types if not is_processor(name) and (row := _row(name)) is not None}
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
            known = name in rows or is_processor(name)
            placed = _placed(candidates, rows.get(name), own.asks(name)) if known else None
            if placed is not None:
                found[name] = placed.prediction.epoch_seconds * passes * placed.work_share
                if own.processes > 1 and is_processor(name):
                    found[name] *= self._processes_factor(training, placed.placement, own.processes)
        return found

    def _processes_factor(self, training: ClickJob, placement: "Placement", processes: int) -> float:
        """How many times as long a step takes in so many processes that share the threads of one.

        By the cost model, with what processes of this machine take to exchange rows and gradients; between machines
        `network_share` of the job adds to that.
        """
        return self._step_seconds(training, placement, processes) / self._step_seconds(training, placement, 1)

    def _step_seconds(
        self,
        training: ClickJob,
        placement: "Placement",
        processes: int,
        collectives: "tuple[CollectiveCost, ...] | None" = None,
    ) -> float:
        """A step by the cost model, in processes that share the threads; over other collectives than this machine's."""
        from shunter.hardware.cost.cost_model import CostModel
        from shunter.planner.describe import describe

        workload = describe(training.dataset, training.spec, training.hyperparameters)
        profile = next(one for one in self._profiles if one.accelerator.name == placement.accelerator)
        if collectives is not None:
            profile = profile.model_copy(update={"collectives": collectives})
        together = placement.model_copy(update={"processes": processes, "threads": max(placement.threads, processes)})
        return CostModel(profile).predict(workload, together).step_seconds

    def _with_costs(self, own: OwnJob) -> OwnJob:
        """With what starting and moving took in past fleets, where the job does not state it."""
        if own.train is None:
            return own
        costs: dict[str, Any] = {}
        for name in COSTS:
            if name not in own.model_fields_set and (known := self.past.seconds(name)):
                costs[name] = known
        if "restore_seconds" not in {*costs, *own.model_fields_set} and "start_seconds" in costs:
            costs["restore_seconds"] = costs["start_seconds"]  # going on begins with a start
        return own.model_copy(update=costs)

    @cached_property
    def _history(self) -> Any:
        from shunter.planner.history import read_history

        return read_history()

    @cached_property
    def _profiles(self) -> Any:
        from shunter.engine.profiling.profiles import local_profiles

        return local_profiles(tell=self._say)


def memory_gib(training: ClickJob, types: Sequence[str]) -> dict[str, float]:
    """What one process of a training is predicted to need, in GiB (`shunter.hardware.cost.memory_model`).

    Of its server's memory what it takes where it trains on the processor: on a GPU it keeps no more there. On a GPU
    what it takes of the device.

    Args:
        training: The training, with its data.
        types: Accelerator types that it may run on.
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


def _row(name: str) -> str | None:
    """The catalogue's name of a type; None where it has none."""
    try:
        return load_catalogue().find_accelerator(name).name
    except RequestError:
        return None


def _placed(candidates: "Sequence[Candidate]", row: str | None, accelerators: int) -> "Candidate | None":
    """The candidate on so many cores of this machine, or on so many accelerators of the catalogue's row, in fp32."""
    found = [one for one in candidates if one.placement.precision == "fp32" and one.placement.power_limit_watts is None]
    if row is None:  # of a processor with fewer cores than that, all are taken
        here = [one for one in found if one.is_here and one.placement.device == CPU]
        fitting = [one for one in here if one.placement.threads <= accelerators]
        return max(fitting, key=lambda one: one.placement.threads, default=None)
    there = [one for one in found if not one.is_here and one.placement.accelerator == row]
    return next((one for one in there if one.placement.processes == accelerators), None)
