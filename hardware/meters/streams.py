"""Power of several meters, on one machine or many, brought together by the time of day."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from pydantic import Field, model_validator

from hardware.types import EnergyReading
from shunter.frozen import Frozen


class PowerStream(Frozen):
    """Mean power of one meter over successive stretches of time: a node's, an outlet's, a service processor's."""

    name: str
    times: tuple[float, ...] = Field(description="Ends of the stretches, seconds since 1970, with the start first.")
    watts: tuple[float, ...] = Field(description="Mean of each stretch: one fewer than times.")
    dropped: int = Field(default=0, description="Points left out because their clock ran backwards.")

    @model_validator(mode="after")
    def _check_shape(self) -> "PowerStream":
        if len(self.times) != len(self.watts) + 1:
            raise ValueError(f"{self.name}: {len(self.times)} times need {len(self.times) - 1} watts between them")
        if any(later <= earlier for earlier, later in pairwise(self.times)):
            raise ValueError(f"{self.name}: times must grow; build the stream with `of_samples`")
        return self

    @classmethod
    def of_reading(cls, name: str, started_at: float, reading: EnergyReading) -> "PowerStream":
        """Stream of a meter's reading.

        Args:
            name: Name of the meter or its node.
            started_at: Time at which the meter was entered, in seconds since 1970.
            reading: Final reading of the meter.
        """
        times = (started_at, *(started_at + sample.seconds for sample in reading.power))
        return cls(name=name, times=times, watts=tuple(sample.watts for sample in reading.power))

    @classmethod
    def of_samples(cls, name: str, samples: Sequence[tuple[float, float]]) -> "PowerStream":
        """Stream of instantaneous readings, pairs of seconds since 1970 and watts, joined by trapezoids.

        A reading whose time is not later than that of the one before is left out and counted in `dropped`.
        """
        kept: list[tuple[float, float]] = []
        for time, watts in samples:
            if not kept or time > kept[-1][0]:
                kept.append((time, watts))
        if not kept:
            raise ValueError(f"{name}: a stream needs at least one sample")
        means = tuple((first[1] + second[1]) / 2 for first, second in pairwise(kept))
        return cls(name=name, times=tuple(time for time, _ in kept), watts=means, dropped=len(samples) - len(kept))

    @property
    def joules(self) -> float:
        """Energy of the whole stream."""
        return float(np.dot(np.diff(self.times), self.watts))

    def joules_until(self, times: np.ndarray) -> np.ndarray:
        """Energy from the start of the stream until each of `times`, level outside of it."""
        totals = np.concatenate([[0.0], np.cumsum(np.diff(self.times) * self.watts)])
        return np.interp(times, self.times, totals)


class MergedPower(Frozen):
    """Several streams added up where all of them have something to say."""

    total: PowerStream
    streams: tuple[str, ...]
    uncovered_seconds: dict[str, float] = Field(
        description="By stream: how much of it lies outside the time that all of them cover, and is not in the total."
    )


def merge_streams(streams: Sequence[PowerStream], name: str = "total") -> MergedPower:
    """Add streams up by time of day, at every moment at which one of them has a point.

    Only the time that all of them cover counts: a sum in which one of them is missing would look like less power. The
    clocks of the machines must agree as closely as the answer is wanted; time servers keep them within milliseconds.

    Args:
        streams: At least one stream.
        name: Name of the sum.

    Raises:
        ValueError: there is no stream, or no moment that all of them cover.
    """
    if not streams:
        raise ValueError("there is no stream to add up")
    begin, end = max(stream.times[0] for stream in streams), min(stream.times[-1] for stream in streams)
    if not begin < end:
        names = ", ".join(stream.name for stream in streams)
        raise ValueError(f"the streams {names} have no time in common: compare the clocks of their machines")
    inside = {time for stream in streams for time in stream.times if begin < time < end}
    times = np.array(sorted({begin, end, *inside}))
    joules = np.sum([stream.joules_until(times) for stream in streams], axis=0)
    watts = np.diff(joules) / np.diff(times)
    return MergedPower(
        total=PowerStream(name=name, times=tuple(times.tolist()), watts=tuple(watts.tolist())),
        streams=tuple(stream.name for stream in streams),
        uncovered_seconds={stream.name: (stream.times[-1] - stream.times[0]) - (end - begin) for stream in streams},
    )
