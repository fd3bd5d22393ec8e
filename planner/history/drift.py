"""Notices that a machine has become slower or faster for good, and figures that stand alone.

Two-sided cumulative sums (Page, "Continuous inspection schemes", Biometrika 41, 1954), self-starting: each step time is
set against the mean of those before it of the same configuration, in standard deviations of that difference (Hawkins,
"Self-starting cusum charts for location and scale", The Statistician 36, 1987), so that a short history raises no false
alarms. A sum that grows beyond a threshold says that the level has changed, and since when: where the sum last left 0.
Each difference counts for no more than a few deviations, so that one wild figure is no change; it is an outlier.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

ALLOWANCE = 0.5  # deviations: a change of twice as much is found soonest
THRESHOLD = 5.0  # deviations: about one false alarm in 500 steady observations with this allowance
LARGEST = 4.0  # deviations that one observation counts for; the same make an outlier
SMALLEST_DEVIATION = 0.03  # of the logarithm of a step time, on the quietest of machines
FEWEST_LIKES = 3  # observations of a configuration, below which none of them can stand alone


@dataclass(frozen=True)
class Level:
    """A stretch of time in which a machine was steady.

    Attributes:
        start: Index of its first observation.
        log_ratio: Natural logarithm of its step times over those of the first stretch.
    """

    start: int
    log_ratio: float


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Attributes:
        levels: Stretches in turn, the first from 0; more than one when the machine has changed.
        outliers: Indices of observations that stand alone.
    """

    levels: tuple[Level, ...]
    outliers: tuple[int, ...]


def inspect(log_times: Sequence[float], configurations: Sequence[Hashable]) -> Inspection:
    """Find changes of level and outliers.

    Args:
        log_times: Natural logarithms of step times, or of their ratio to a prediction, in order of time.
        configurations: Name of what ran, one each; times of different ones are not compared.
    """
    values = np.asarray(log_times, float)
    deviation = _deviation(values, configurations)
    starts = [0]
    while (change := _first_change(values, configurations, starts[-1], deviation)) is not None:
        starts.append(change)
    levels = _levels(values, configurations, starts)
    return Inspection(levels, tuple(_outliers(values, configurations, levels, deviation)))


def _first_change(values: np.ndarray, configurations: Sequence[Hashable], start: int, deviation: float) -> int | None:
    """Index of the first observation after the first change since `start`; None when the machine stays as it is."""
    likes: dict[Hashable, list[float]] = {}
    steps = np.zeros(len(values))
    up, down = _Sum(1.0), _Sum(-1.0)
    for index in range(start, len(values)):
        before = likes.setdefault(configurations[index], [])
        if before:
            mean, unit = float(np.mean(before)), deviation * (1 + 1 / len(before)) ** 0.5
            steps[index] = np.clip((values[index] - mean) / unit, -LARGEST, LARGEST)
            before.append(mean + float(steps[index]) * unit)
            for side in (up, down):
                side.add(float(steps[index]), index)
        else:
            before.append(float(values[index]))
        alarmed = next((side for side in (up, down) if side.total > THRESHOLD), None)
        if alarmed is not None:
            return alarmed.since + _best_split(steps[alarmed.since : index + 1])
    return None


def _best_split(steps: np.ndarray) -> int:
    """Where a series that is 0 at first and another constant later changes, by least squares; it may be at once."""
    later = np.cumsum(steps[::-1])[::-1]
    return int((later**2 / np.arange(len(steps), 0, -1)).argmax())


def _levels(values: np.ndarray, configurations: Sequence[Hashable], starts: Sequence[int]) -> tuple[Level, ...]:
    """Each stretch with its level: what it adds to the one before is a median over what both have run."""
    levels = [Level(0, 0.0)]
    for before, start, end in zip(starts, starts[1:], [*starts[2:], len(values)], strict=False):
        likes: dict[Hashable, list[float]] = {}
        for value, name in zip(values[before:start], configurations[before:start], strict=True):
            likes.setdefault(name, []).append(float(value))
        shifts = [
            values[at] - np.median(likes[configurations[at]]) for at in range(start, end) if configurations[at] in likes
        ]
        levels.append(Level(start, levels[-1].log_ratio + float(np.median(shifts))))
    return tuple(levels)


class _Sum:
    """One side of the cumulative sum."""

    def __init__(self, sign: float) -> None:
        self.sign, self.total, self.since = sign, 0.0, 0

    def add(self, step: float, index: int) -> None:
        if self.total == 0.0:
            self.since = index
        self.total = max(0.0, self.total + self.sign * step - ALLOWANCE)


def _deviation(values: np.ndarray, configurations: Sequence[Hashable]) -> float:
    """Robust standard deviation, from differences of one time to the next, which a change of level hardly touches."""
    last: dict[Hashable, float] = {}
    differences = []
    for value, name in zip(values, configurations, strict=True):
        if name in last:
            differences.append(value - last[name])
        last[name] = value
    if not differences:
        return SMALLEST_DEVIATION
    median = float(np.median(np.abs(np.asarray(differences))))
    return max(1.4826 * median / 2**0.5, SMALLEST_DEVIATION)


def _outliers(
    values: np.ndarray, configurations: Sequence[Hashable], levels: Sequence[Level], deviation: float
) -> list[int]:
    """What lies far from the median of its configuration at the level of its time."""
    found = []
    ends = [*(level.start for level in levels[1:]), len(values)]
    for level, end in zip(levels, ends, strict=True):
        likes: dict[Hashable, list[int]] = {}
        for index in range(level.start, end):
            likes.setdefault(configurations[index], []).append(index)
        for indices in likes.values():
            away = np.abs(values[indices] - np.median(values[indices])) > LARGEST * deviation
            found += [
                index for index, is_far in zip(indices, away, strict=True) if is_far and len(indices) >= FEWEST_LIKES
            ]
    return sorted(found)
