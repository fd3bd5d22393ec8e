"""Interface between the driver and the component that runs the training jobs, with its events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class LiveMachine:
    """Machine that is up.

    Attributes:
        name: Name of the machine, the same when it returns after a failure.
        accelerator: Accelerator type: the model of the machine's GPUs, or `cpu`, counted in cores.
        count: Number of accelerators available to jobs, free or not.
        free: Number of free accelerators.
        server: Server that contains the machine and shares its memory; empty if the machine is a whole server.
        memory_gib: Server memory available to jobs, used or not; 0 if not counted.
        free_memory_gib: Free server memory.
    """

    name: str
    accelerator: str
    count: int
    free: int
    server: str = ""
    memory_gib: float = 0.0
    free_memory_gib: float = 0.0

    @property
    def box(self) -> str:
        """Name of the server that the machine belongs to."""
        return self.server or self.name


Places = tuple[tuple[str, int], ...]
"""Machines, each with a number of its accelerators: several if the processes of a job run on several machines."""


def names_of(places: Places) -> str:
    """Return the machines as text for the user."""
    return " and ".join(name for name, _ in places)


class Progress(NamedTuple):
    """Progress of a training run.

    Attributes:
        done: Number of completed steps.
        total: Number of steps of the job's longest schedule.
        saved: Number of steps at the job's last checkpoint.
    """

    done: int
    total: int
    saved: int

    @property
    def share(self) -> float:
        """Completed share of the longest schedule."""
        return self.done / self.total if self.total else 0.0

    @property
    def saved_share(self) -> float:
        """Share of the longest schedule at the last checkpoint."""
        return self.saved / self.total if self.total else 0.0


class Granted(NamedTuple):
    """Event: a job has got its accelerators and begins or resumes."""

    job: str


class Trained(NamedTuple):
    """Event: a training run has ended and released its accelerators; its model is not yet evaluated and registered."""

    job: str


class Finished(NamedTuple):
    """Event: a job has completed, including the evaluation of its model.

    Attributes:
        figures: Metrics of the job's model, by their names in MLflow.
    """

    job: str
    figures: dict[str, float]


class Stopped(NamedTuple):
    """Event: a stopped job has saved its state and released its accelerators."""

    job: str


class Lost(NamedTuple):
    """Event: a job was lost with its process or machine; its last checkpoint is available."""

    job: str
    because: str


class Failed(NamedTuple):
    """Event: a job has failed with an error that a retry would not avoid."""

    job: str
    because: str


Event = Granted | Trained | Finished | Stopped | Lost | Failed


class Trainings(Protocol):
    """Runner of jobs on machines, which returns events on request only.

    Each start ends with one of the events `Finished` (after `Trained`), `Stopped`, `Lost` and `Failed`. The event
    `Granted` comes before, when the job gets its accelerators. A job is restarted only after the final event.
    """

    def machines(self) -> Sequence[LiveMachine]:
        """Return the machines that are up.

        Raises:
            HardwareError: The cluster does not respond.
        """
        ...

    def start(self, job: str, places: Places) -> None:
        """Start a job, from its last checkpoint if any, as soon as the machines have enough free accelerators."""
        ...

    def stop(self, job: str) -> None:
        """Stop a job after a checkpoint."""
        ...

    def events(self, timeout_seconds: float) -> list[Event]:
        """Return the events since the last call, in order; wait up to the timeout for the first one."""
        ...

    def progress(self, job: str) -> Progress | None:
        """Return the progress of a job; None before its first step."""
        ...
