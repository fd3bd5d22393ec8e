"""Detection of lasting speed changes of a machine, and of outliers.

A machine's speed varies from run to run with other load, temperature and clock. All measurements of one session, which
is the run of a command, share these conditions, so that a session counts once. A session's shift is the median distance
of its measurements to the mean of earlier sessions of the same configuration.

Two-sided cumulative sums of the shifts detect a change of level (Page, "Continuous inspection schemes", Biometrika 41,
1954). The sums are self-starting, in standard deviations of the difference (Hawkins, "Self-starting cusum charts for
location and scale", The Statistician 36, 1987). The change begins where the sum last left 0. Each shift is limited to a
few deviations, so that one extreme day is no change.

The deviation between sessions combines the observed differences with a prior. Two days that agree by chance therefore
do not turn the third day into an alarm. The constants of the sums are the textbook's, and those of the prior are round
numbers; `benchmarks/drift.py` evaluates them on simulated machines that were not used to set them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

ALLOWANCE = 0.5  # deviations: a change of twice this size is detected soonest
THRESHOLD = 5.0  # deviations: about one false alarm in 500 steady sessions with this allowance
LARGEST = 4.0  # largest shift of one session, in deviations; a single figure beyond it is an outlier
# Prior deviation between sessions, of the logarithm of a step time, and its weight in sessions.
SESSION_DEVIATION, SESSION_WEIGHT = 0.10, 4.0
SMALLEST_DEVIATION = 0.03  # of single figures within a session, on the quietest of machines
FEWEST_LIKES = 3  # fewest observations of a configuration for outlier detection


@dataclass(frozen=True)
class Level:
    """Period in which a machine's speed was constant.

    Attributes:
        start: Index of the level's first observation.
        log_ratio: Natural logarithm of the level's step times over those of the first period.
    """

    start: int
    log_ratio: float


@dataclass(frozen=True)
class Inspection:
    """Result of an inspection.

    Attributes:
        levels: Periods in order, the first from index 0; more than one if the machine has changed.
        outliers: Indices of outliers.
    """

    levels: tuple[Level, ...]
    outliers: tuple[int, ...]


def inspect(
    log_times: Sequence[float], configurations: Sequence[Hashable], sessions: Sequence[Hashable] | None = None
) -> Inspection:
    """Find changes of level and outliers.

    Args:
        log_times: Natural logarithms of step times, or of their ratio to a prediction, in order of time.
        configurations: Configuration of each observation; only equal configurations are compared.
        sessions: Session of each observation, such as the run; if None, each observation is its own session.
    """
    values = np.asarray(log_times, float)
    places = _places(sessions if sessions is not None else range(len(values)))
    deviation = _session_deviation(values, configurations, places)
    starts = [0]
    while (change := _first_change(values, configurations, places, starts[-1], deviation)) is not None:
        starts.append(change)
    levels = _levels(values, configurations, starts)
    within = _deviation(values, configurations, places)
    return Inspection(levels, tuple(_outliers(values, configurations, levels, float(np.hypot(within, deviation)))))


def _places(sessions: Sequence[Hashable]) -> list[list[int]]:
    """Return the indices of the observations of each session, in order."""
    found: dict[Hashable, list[int]] = {}
    for index, session in enumerate(sessions):
        found.setdefault(session, []).append(index)
    return list(found.values())


def _first_change(
    values: np.ndarray, configurations: Sequence[Hashable], places: Sequence[list[int]], start: int, deviation: float
) -> int | None:
    """Return the index of the first observation after the first change since `start`; None without a change."""
    likes: dict[Hashable, list[float]] = {}  # by configuration, one mean for each session
    steps: list[float] = []
    begins: list[int] = []
    up, down = _Sum(1.0), _Sum(-1.0)
    for place in places:
        own = [index for index in place if index >= start]
        if not own:
            continue
        known = [index for index in own if configurations[index] in likes]
        step, shift = 0.0, 0.0
        if known:
            shift = float(np.median([values[index] - np.mean(likes[configurations[index]]) for index in known]))
            sessions = float(np.median([len(likes[configurations[index]]) for index in known]))
            unit = deviation * (1 + 1 / sessions) ** 0.5
            step = float(np.clip(shift / unit, -LARGEST, LARGEST))
            shift -= step * unit  # the part of the shift beyond the limit is subtracted from the session's figures
            for side in (up, down):
                side.add(step, len(steps))
        begins.append(own[0])
        steps.append(step)
        for name in dict.fromkeys(configurations[index] for index in own):
            mean = float(np.mean([values[index] for index in own if configurations[index] == name]))
            likes.setdefault(name, []).append(mean - shift)
        alarmed = next((side for side in (up, down) if side.total > THRESHOLD), None)
        if alarmed is not None:
            return begins[alarmed.since + _best_split(np.array(steps[alarmed.since :]))]
    return None


def _best_split(steps: np.ndarray) -> int:
    """Return where a series changes from 0 to another constant, by least squares; the index can be 0."""
    later = np.cumsum(steps[::-1])[::-1]
    return int((later**2 / np.arange(len(steps), 0, -1)).argmax())


def _levels(values: np.ndarray, configurations: Sequence[Hashable], starts: Sequence[int]) -> tuple[Level, ...]:
    """Return the level of each period; its shift to the previous period is a median over shared configurations."""
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
    """One side of the two-sided cumulative sum."""

    def __init__(self, sign: float) -> None:
        self.sign, self.total, self.since = sign, 0.0, 0

    def add(self, step: float, index: int) -> None:
        if self.total == 0.0:
            self.since = index
        self.total = max(0.0, self.total + self.sign * step - ALLOWANCE)


def _session_deviation(values: np.ndarray, configurations: Sequence[Hashable], places: Sequence[list[int]]) -> float:
    """Return the standard deviation between sessions, from successive differences, robust to level changes."""
    last: dict[Hashable, float] = {}
    differences = []
    for place in places:
        means: dict[Hashable, list[float]] = {}
        for index in place:
            means.setdefault(configurations[index], []).append(float(values[index]))
        shared = [float(np.mean(found)) - last[name] for name, found in means.items() if name in last]
        if shared:
            differences.append(float(np.median(shared)))
        last |= {name: float(np.mean(found)) for name, found in means.items()}
    if not differences:
        return SESSION_DEVIATION
    seen = 1.4826 * float(np.median(np.abs(differences))) / 2**0.5
    weight = len(differences)
    return float(np.sqrt((SESSION_WEIGHT * SESSION_DEVIATION**2 + weight * seen**2) / (SESSION_WEIGHT + weight)))


def _deviation(values: np.ndarray, configurations: Sequence[Hashable], places: Sequence[list[int]]) -> float:
    """Return the robust standard deviation of single figures within a session."""
    away: list[float] = []
    for place in places:
        alike: dict[Hashable, list[float]] = {}
        for index in place:
            alike.setdefault(configurations[index], []).append(float(values[index]))
        away += [value - float(np.median(found)) for found in alike.values() if len(found) > 1 for value in found]
    return max(1.4826 * float(np.median(np.abs(away))), SMALLEST_DEVIATION) if away else SMALLEST_DEVIATION


def _outliers(
    values: np.ndarray, configurations: Sequence[Hashable], levels: Sequence[Level], deviation: float
) -> list[int]:
    """Return the observations far from the median of their configuration in the same period."""
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
