"""Machines in memory: they train at a known pace on a clock of their own, and break when they are told to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from shunter.extensions.fleet.job import Conditions, Job
from shunter.extensions.fleet.live.role import (
    Event,
    Failed,
    Finished,
    Granted,
    LiveMachine,
    Lost,
    Places,
    Progress,
    Stopped,
    Trained,
    names_of,
)

STEPS = 1000


@dataclass
class Run:
    """One training under way; it holds accelerators once `begun` is set."""

    job: str
    places: Places
    done: float
    begun: float | None = None
    stops: bool = False


@dataclass
class MachinesInMemory:
    """A `live.role.Trainings`: the ledger of accelerators is here, so that too much is noticed.

    Args:
        jobs: What the jobs really take.
        up: The machines.
        checkpoint_every: Share of a job after which it saves its state.
        broken: Jobs that fail for a reason of their own.
        deadly: Jobs that kill their process before their first checkpoint.
        happen: What happens to the machines when, by its moment.
    """

    jobs: Mapping[str, Job]
    up: dict[str, LiveMachine]
    checkpoint_every: float = 0.1
    broken: Sequence[str] = ()
    deadly: Sequence[str] = ()
    happen: dict[float, Callable[["MachinesInMemory"], None]] = field(default_factory=dict)
    now: float = 0.0
    runs: dict[str, Run] = field(default_factory=dict)
    saved: dict[str, float] = field(default_factory=dict)
    told: list[Event] = field(default_factory=list)
    starts: list[tuple[str, str]] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    interrupt_at: float = inf

    def clock(self) -> float:
        return self.now

    def machines(self) -> Sequence[LiveMachine]:
        return [
            replace(one, free=max(self._room(name), 0), free_memory_gib=one.memory_gib - self.held_memory(one.box))
            for name, one in self.up.items()
        ]

    def held_memory(self, box: str) -> float:
        """What the jobs on a server hold of its memory."""
        begun = [run for run in self.runs.values() if run.begun is not None]
        return sum(
            self._memory(run, name, count) for run in begun for name, count in run.places if self._is_of(name, box)
        )

    def _is_of(self, machine: str, box: str) -> bool:
        return machine in self.up and self.up[machine].box == box

    def _memory(self, run: Run, machine: str, count: int) -> float:
        return self.jobs[run.job].need(self.up[machine].accelerator).memory(count)

    def _room(self, machine: str) -> int:
        return self.up[machine].count - self.held(machine) - self.others.get(machine, 0)

    def held(self, machine: str) -> int:
        begun = [run for run in self.runs.values() if run.begun is not None]
        return sum(count for run in begun for name, count in run.places if name == machine)

    def start(self, job: str, places: Places) -> None:
        assert job not in self.runs, f"{job} is started twice"
        self.starts.append((job, names_of(places)))
        self.runs[job] = Run(job, places, self.saved.get(job, 0.0))
        if self.saved.get(job, 0.0) >= 1.0:
            self.told += [Trained(job), Finished(job, {})]
            del self.runs[job]
        self._grant()

    def stop(self, job: str) -> None:
        if job in self.runs:
            self.runs[job].stops = True

    def progress(self, job: str) -> Progress | None:
        if job not in self.runs:
            saved = int(self.saved.get(job, 0.0) * STEPS)
            return Progress(saved, STEPS, saved)
        done = int(self._done(self.runs[job]) * STEPS)
        return Progress(done, STEPS, int(self._saved(self.runs[job]) * STEPS)) if done else None

    def events(self, timeout_seconds: float) -> list[Event]:
        until = self.now + timeout_seconds
        while not self.told and self.now < until:
            moments = [self._end(run) for run in self.runs.values() if run.begun is not None]
            stops = [self.now for run in self.runs.values() if run.stops]
            self.now = max(self.now, min([until, self.interrupt_at, *moments, *self.happen, *stops]))
            if self.now >= self.interrupt_at:
                self.interrupt_at = inf
                raise KeyboardInterrupt
            for moment in [moment for moment in self.happen if moment <= self.now]:
                self.happen.pop(moment)(self)
            self._pass()
        told, self.told = self.told, []
        return told

    def lose(self, machine: str) -> LiveMachine:
        """A machine goes away with what runs on it."""
        for run in [run for run in self.runs.values() if machine in dict(run.places)]:
            self.saved[run.job] = self._saved(run)
            del self.runs[run.job]
            self.told.append(Lost(run.job, f"Machine {machine} died."))
        return self.up.pop(machine)

    def kill_all(self) -> None:
        """Their driver is gone, and so are they."""
        for run in list(self.runs.values()):
            self.saved[run.job] = self._saved(run)
        self.runs, self.told = {}, []

    def _pass(self) -> None:
        for run in list(self.runs.values()):
            if run.stops:
                self.saved[run.job] = self._done(run)
                self._tell(Stopped(run.job))
            elif run.begun is not None and run.job in self.broken:
                self._tell(Failed(run.job, "its loss is not a number any more"))
            elif run.begun is not None and run.job in self.deadly:
                self._tell(Lost(run.job, "its process was killed"))
            elif run.begun is not None and self.now >= self._end(run):
                self.saved[run.job] = 1.0
                self._tell(Trained(run.job))
                self.told.append(Finished(run.job, {"quality.auc": 0.7}))
        self._grant()

    def _tell(self, event: Event) -> None:
        self.told.append(event)
        del self.runs[event.job]

    def _grant(self) -> None:
        for run in self.runs.values():
            fits = all(
                name in self.up and count <= self._room(name) and self._has_memory(run, name, count)
                for name, count in run.places
            )
            if run.begun is None and fits:
                run.begun = self.now
                self.told.append(Granted(run.job))

    def _has_memory(self, run: Run, machine: str, count: int) -> bool:
        one = self.up[machine]
        return not one.memory_gib or self.held_memory(one.box) + self._memory(run, machine, count) <= one.memory_gib

    def _conditions(self, run: Run) -> Conditions:
        counts = tuple(count for _, count in run.places)
        return Conditions(self.up[run.places[0][0]].accelerator, counts, 0 if len(counts) == 1 else 1)

    def _whole(self, run: Run) -> float:
        return self.jobs[run.job].work.seconds_left(0.0, self._conditions(run))

    def _done(self, run: Run) -> float:
        if run.begun is None:
            return run.done
        return min(run.done + (self.now - run.begun) / self._whole(run), 1.0)

    def _saved(self, run: Run) -> float:
        """What its last checkpoint holds: one is made at each multiple of `checkpoint_every`."""
        return max(run.done, self._done(run) // self.checkpoint_every * self.checkpoint_every)

    def _end(self, run: Run) -> float:
        assert run.begun is not None
        return run.begun + (1.0 - run.done) * self._whole(run)
