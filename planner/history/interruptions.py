"""Frequency of interruptions, wait for checkpoints, and the time that both add to the next training run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from shunter.tracking.convention import TRAINING_METRICS
from shunter.tracking.history import TrackedRun

RESTORES, STALL, SECONDS = "checkpoint.restores", "checkpoint.stall_seconds", TRAINING_METRICS["train_seconds"]


@dataclass(frozen=True)
class Interruptions:
    """Measured totals of past training runs with checkpoints.

    Attributes:
        trainings: Number of counted training runs.
        seconds: Time of all of them.
        restores: Number of resumptions from a checkpoint; restarts from zero after a kill are not counted.
        stall_seconds: Seconds of waiting for checkpoints.
    """

    trainings: int = 0
    seconds: float = 0.0
    restores: float = 0.0
    stall_seconds: float = 0.0

    @classmethod
    def of(cls, tracked: Sequence[TrackedRun]) -> Self:
        """Count the interruptions of training runs, from their metrics."""
        counted = [run.metrics for run in tracked if {RESTORES, STALL, SECONDS} <= run.metrics.keys()]
        return cls(
            trainings=len(counted),
            seconds=sum(metrics[SECONDS] for metrics in counted),
            restores=sum(metrics[RESTORES] for metrics in counted),
            stall_seconds=sum(metrics[STALL] for metrics in counted),
        )

    @property
    def stall_share(self) -> float:
        """Return the share of the time spent waiting for checkpoints."""
        return self.stall_seconds / self.seconds if self.seconds else 0.0

    def recomputed_share(self, interval_seconds: float) -> float:
        """Return the expected share of the time spent repeating steps after interruptions.

        Interruptions are random, so that each loses half of the checkpoint interval on average, or half of the training
        if that is shorter.

        Args:
            interval_seconds: Longest time between two checkpoints.
        """
        if not self.seconds:
            return 0.0
        return self.restores / self.seconds * min(interval_seconds, self.seconds / self.trainings) / 2

    def lost_share(self, interval_seconds: float) -> float:
        """Return the expected share of the time that waiting for checkpoints and repeated steps add."""
        return self.stall_share + self.recomputed_share(interval_seconds)

    def notes(self, interval_seconds: float) -> list[str]:
        """Return a note on the added time and its source; empty if no training was counted.

        Args:
            interval_seconds: Longest time between two checkpoints.
        """
        if not self.seconds:
            return []
        trainings = "1 past training run" if self.trainings == 1 else f"{self.trainings} past training runs"
        seen = {0: "never", 1: "once"}.get(round(self.restores), f"{self.restores:.0f} times")
        return [
            f"Checkpoints add {self.lost_share(interval_seconds):.2%} to the time: {self.stall_share:.2%} of waiting "
            f"and {self.recomputed_share(interval_seconds):.2%} of repeating work that interruptions lost (measured "
            f"over {trainings} of {self.seconds / 3600:.2g} h together, resumed from a checkpoint {seen}; "
            f"one every {interval_seconds / 60:g} min is expected)."
        ]


NONE_SEEN = Interruptions()
