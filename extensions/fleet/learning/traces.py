"""Training traces sampled from the user's jobs, so that a policy learns the load and not one trace."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shunter.extensions.fleet.job import Job

LEARNED_SHARE = 0.7  # of the jobs, the earlier ones; the others are for the comparison


class Traces:
    """Sampler of short traces: consecutive jobs, with randomly scaled gaps and lengths.

    Args:
        jobs: The user's jobs.
        length: Number of jobs in a trace.
        spread: Standard deviation of the log factor on the gaps of a trace, and on each gap.
    """

    def __init__(self, jobs: Sequence[Job], length: int, spread: float = 0.3) -> None:
        self._jobs = sorted(jobs, key=lambda job: job.arrival_seconds)
        self._length = min(length, len(self._jobs))
        self._spread = spread

    def draw(self, draw: np.random.Generator) -> list[Job]:
        """Sample one trace."""
        begin = int(draw.integers(0, len(self._jobs) - self._length + 1))
        stretch = self._jobs[begin : begin + self._length]
        gaps = np.diff([job.arrival_seconds for job in stretch], prepend=stretch[0].arrival_seconds)
        order = draw.permutation(len(stretch))
        pace = np.exp(draw.normal(0, self._spread))
        moments = np.cumsum(gaps * pace * np.exp(draw.normal(0, self._spread, len(gaps))))
        return [
            replace(stretch[which], name=f"{i} {stretch[which].name}", arrival_seconds=float(moment))
            for i, (which, moment) in enumerate(zip(order, moments, strict=True))
        ]


def split(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """Split the jobs into earlier ones for learning and later ones for the comparison; few jobs are used for both."""
    ordered = sorted(jobs, key=lambda job: job.arrival_seconds)
    cut = round(len(ordered) * LEARNED_SHARE)
    if len(ordered) < 20:
        return ordered, ordered
    return ordered[:cut], ordered[cut:]
