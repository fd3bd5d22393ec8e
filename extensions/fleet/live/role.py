"""What the driver asks of whoever runs the trainings, and what it is told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class LiveMachine:
    """A machine that is up.

    Attributes:
        name: Its name, the same again when it returns after a failure.
        accelerator: Type of what it trains on: the model of its GPUs, or `cpu`, counted in cores.
        count: How many it gives out.
        free: How many of them nobody holds.
        server: The box of which it is a part, whose memory all parts share; empty for one that is a box of its own.
        memory_gib: Memory of that box that is given out; 0 where nobody counts it.
        free_memory_gib: How much of it nobody holds.
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
        """The box that it is, or a part of."""
        return self.server or self.name


Places = tuple[tuple[str, int], ...]
"""Machines, each with how many of its accelerators: several where the processes of a training lie on several."""


def names_of(places: Places) -> str:
    """The machines, for people."""
    return " and ".join(name for name, _ in places)


class Progress(NamedTuple):
    """How far a training is.

    Attributes:
        done: Steps done.
        total: Steps of its longest schedule.
        saved: Steps that its last checkpoint holds.
    """

    done: int
    total: int
    saved: int

    @property
    def share(self) -> float:
        """Share of the longest schedule that is done."""
        return self.done / self.total if self.total else 0.0

    @property
    def saved_share(self) -> float:
        """Share of the longest schedule that the last checkpoint holds."""
        return self.saved / self.total if self.total else 0.0


class Granted(NamedTuple):
    """A training has got its accelerators and begins, or goes on."""

    job: str


class Trained(NamedTuple):
    """A training has come to its end and holds nothing any more; its model is still to be judged and registered."""

    job: str


class Finished(NamedTuple):
    """All is done.

    Attributes:
        job: Name of the job.
        figures: What its model reached, by the names in MLflow.
    """

    job: str
    figures: dict[str, float]


class Stopped(NamedTuple):
    """A training that was told to stop has saved its state and holds nothing any more."""

    job: str


class Lost(NamedTuple):
    """A training is gone with its process or machine; its last checkpoint is kept."""

    job: str
    because: str


class Failed(NamedTuple):
    """A training has ended for a reason of its own, which would come again."""

    job: str
    because: str


Event = Granted | Trained | Finished | Stopped | Lost | Failed


class Trainings(Protocol):
    """Runs jobs on machines; what becomes of them it tells when it is asked, never in between.

    Of a start comes at last one of `Finished` (after `Trained`), `Stopped`, `Lost` and `Failed`, and before it a
    `Granted` once there was room. A job is started again only after that.
    """

    def machines(self) -> Sequence[LiveMachine]:
        """The machines that are up.

        Raises:
            HardwareError: The cluster does not answer any more.
        """
        ...

    def start(self, job: str, places: Places) -> None:
        """Let a job train, from its last checkpoint if it has one, as soon as there is room on these machines."""
        ...

    def stop(self, job: str) -> None:
        """Let a job save its state and end."""
        ...

    def events(self, timeout_seconds: float) -> list[Event]:
        """What has happened since the last call, in order; waits so long for something to happen."""
        ...

    def progress(self, job: str) -> Progress | None:
        """How far a job is; None before its first step."""
        ...
