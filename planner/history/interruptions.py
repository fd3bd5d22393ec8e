"""How often trainings were interrupted, what waiting for their checkpoints took, and what that costs the next one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from shunter.tracking.convention import TRAINING_METRICS
from shunter.tracking.history import TrackedRun

RESTORES, STALL, SECONDS = "checkpoint.restores", "checkpoint.stall_seconds", TRAINING_METRICS["train_seconds"]


@dataclass(frozen=True)
class Interruptions:
    """What past trainings with checkpoints came to, measured.

    Attributes:
        trainings: Trainings that were counted.
        seconds: Time of all of them.
        restores: How often they were gone on with from a checkpoint; those that began anew after a kill are not seen.
        stall_seconds: Time that they waited for their checkpoints.
    """

    trainings: int = 0
    seconds: float = 0.0
    restores: float = 0.0
    stall_seconds: float = 0.0

    @classmethod
    def of(cls, tracked: Sequence[TrackedRun]) -> Self:
        """Count the trainings that have such figures."""
        counted = [run.metrics for run in tracked if {RESTORES, STALL, SECONDS} <= run.metrics.keys()]
        return cls(
            trainings=len(counted),
            seconds=sum(metrics[SECONDS] for metrics in counted),
            restores=sum(metrics[RESTORES] for metrics in counted),
            stall_seconds=sum(metrics[STALL] for metrics in counted),
        )

    @property
    def stall_share(self) -> float:
        """Part of the time that went into waiting for checkpoints."""
        return self.stall_seconds / self.seconds if self.seconds else 0.0

    def recomputed_share(self, interval_seconds: float) -> float:
        """Part of the time that is expected to go into what an interruption takes back.

        Interruptions come by chance, so half of the time between two checkpoints is lost each time; where trainings
        are shorter than that, half of a training.

        Args:
            interval_seconds: Longest time between two checkpoints.
        """
        if not self.seconds:
            return 0.0
        return self.restores / self.seconds * min(interval_seconds, self.seconds / self.trainings) / 2

    def lost_share(self, interval_seconds: float) -> float:
        """Part of the time that checkpoints and interruptions are expected to add."""
        return self.stall_share + self.recomputed_share(interval_seconds)

    def notes(self, interval_seconds: float) -> list[str]:
        """What the estimate adds, and what it is taken from; nothing where no training was counted.

        Args:
            interval_seconds: Longest time between two checkpoints.
        """
        if not self.seconds:
            return []
        trainings = "1 past training" if self.trainings == 1 else f"{self.trainings} past trainings"
        seen = {0: "never", 1: "once"}.get(round(self.restores), f"{self.restores:.0f} times")
        return [
            f"Checkpoints add {self.lost_share(interval_seconds):.2%} to the time: {self.stall_share:.2%} of waiting "
            f"and {self.recomputed_share(interval_seconds):.2%} of doing again what interruptions take back (measured "
            f"over {trainings} of {self.seconds / 3600:.2g} h together, gone on with from a checkpoint {seen}; "
            f"one every {interval_seconds / 60:g} min is reckoned with)."
        ]


NONE_SEEN = Interruptions()
