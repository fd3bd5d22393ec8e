"""Traces to learn from: jobs of the user's, drawn anew, so that a policy learns the load and not the trace."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shunter.extensions.fleet.job import Job

LEARNED_SHARE = 0.7  # of the jobs, the earlier; the others are kept for the comparison


class Traces:
    """Draws short traces from jobs: a stretch of them in their order, gaps and lengths stretched a little.

    Args:
        jobs: The user's jobs.
        length: Jobs in a trace.
        spread: Standard deviation of the logarithm by which the gaps of a trace, and each gap, are stretched.
    """

    def __init__(self, jobs: Sequence[Job], length: int, spread: float = 0.3) -> None:
        self._jobs = sorted(jobs, key=lambda job: job.arrival_seconds)
        self._length = min(length, len(self._jobs))
        self._spread = spread

    def draw(self, draw: np.random.Generator) -> list[Job]:
        """One trace."""
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
    """The jobs to learn from, and those that come after them, for the comparison; of few jobs, all for both."""
    ordered = sorted(jobs, key=lambda job: job.arrival_seconds)
    cut = round(len(ordered) * LEARNED_SHARE)
    if len(ordered) < 20:
        return ordered, ordered
    return ordered[:cut], ordered[cut:]
