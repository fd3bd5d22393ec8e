"""End of a training run or a search: typed reasons, one clock for each command, and stop conditions that read it.

No other module reads time to decide an end.
"""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from shunter.checked_json import json_object, read_or_quarantine
from shunter.engine.checkpoint.checked_files import write_json
from shunter.errors import ShunterError, TrainingError
from shunter.hardware.units import JOULES_PER_KWH
from shunter.parallel import periodic

if TYPE_CHECKING:
    from shunter.hardware.types import EnergyReading


class StopKind(StrEnum):
    """Kind of cause that ended a training run or a search."""

    MAX_EPOCHS = "max_epochs"  # the schedule's last epoch
    PATIENCE = "patience"  # as many epochs without a better validation as the schedule allows
    SOLVED = "solved"  # a closed form has one pass
    EARLIER = "earlier"  # an earlier run has trained the model
    TRIALS = "trials"  # the search made all its trials
    EXHAUSTED = "exhausted"  # the search method has no other point to propose
    LIMIT = "limit"  # a limit of the request
    SEARCH_BUDGET = "search_budget"  # the budget of the search alone
    SHARE = "share"  # the part of the search's budget that one step may use
    EXPLORATION = "exploration"  # the time of an exploration
    PRUNED = "pruned"  # other trials were better
    SCREENING = "look"  # a short trial of a model family has ended
    INTERRUPTED = "interrupted"  # a person or another process ended it


class StopLimit(StrEnum):
    """Quantity whose limit ended a training run or a search."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"


# Time between two readings of a meter by a condition that is checked each step; a reading sums the meter's samples.
ENERGY_INTERVAL_SECONDS = 2.0
LEAST_ENERGY_INTERVAL_SECONDS = 0.1  # shortly before the limit is expected to be reached
CLOCK_FILE = "clock.json"
WORK = "work"  # span of the clock from the choice of a placement to the end, in which energy is metered
JOB = "job"  # span of the clock: search and training, whose time the decision predicts
SCHEDULED = frozenset((StopKind.MAX_EPOCHS, StopKind.PATIENCE, StopKind.SOLVED, StopKind.EARLIER))


@dataclass(frozen=True)
class StopReason:
    """Reason why a training run or a search ended.

    Attributes:
        kind: Cause.
        limit: Quantity whose limit was reached; None if there was none.
        details: Figures of the limit, with units in their names.
    """

    kind: StopKind
    limit: StopLimit | None = None
    details: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def is_scheduled(self) -> bool:
        """Return True if the training run reached the end of its own schedule."""
        return self.kind in SCHEDULED

    @property
    def limits_request(self) -> bool:
        """Return True if a limit of the request was reached."""
        return self.kind is StopKind.LIMIT

    @property
    def is_exploration(self) -> bool:
        """Return True if an exploration used up its time."""
        return self.kind is StopKind.EXPLORATION

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the reason from the plain values of `dataclasses.asdict`."""
        limit = values["limit"]
        return cls(StopKind(values["kind"]), limit and StopLimit(limit), dict(values["details"]))


ShouldStop = Callable[[], StopReason | None]


class StoppedError(TrainingError):
    """Error raised if a limit ended the work before there was a result.

    Attributes:
        reason: Reason of the end.
    """

    code = "stopped"

    def __init__(self, message: str, reason: StopReason) -> None:
        super().__init__(message, reason)
        self.reason = reason

    @property
    def is_exploration(self) -> bool:
        """Return True if an exploration used up its time, after which a run continues at the incumbent placement."""
        return self.reason.is_exploration

    def __str__(self) -> str:
        """Return the error message."""
        return str(self.args[0])


class RunClock:
    """Seconds of one command since its start, over all its attempts.

    The clock is saved to a folder every few seconds, so that an attempt after an interruption continues it. Spans count
    the parts of the command that have limits of their own; spans may overlap.

    Args:
        before: Seconds that this process spent on the command before the clock was made.
        now: Monotonic clock in seconds.
    """

    def __init__(self, before: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began, self._paused, self._earlier, self._earlier_paused = now() - before, 0.0, 0.0, 0.0
        self._spans: dict[str, float] = {}
        self._running: dict[str, float] = {}
        self._file: Path | None = None
        self._saving = threading.Lock()

    @property
    def attempt_seconds(self) -> float:
        """Seconds that the current attempt of the command has taken, without pauses."""
        return self._now() - self._began - self._paused

    @property
    def seconds(self) -> float:
        """Seconds that all attempts of the command took, without pauses."""
        return self._earlier + self.attempt_seconds

    @property
    def wall_seconds(self) -> float:
        """Wall-clock seconds of all attempts, pauses included."""
        return self.earlier_wall_seconds + self.attempt_seconds + self._paused

    @property
    def earlier_wall_seconds(self) -> float:
        """Wall-clock seconds of the earlier attempts, pauses included."""
        return self._earlier + self._earlier_paused

    def seconds_of(self, span: str) -> float:
        """Return the seconds of a span so far, earlier attempts included."""
        began = self._running.get(span)
        return self._spans.get(span, 0.0) + (0.0 if began is None else self.attempt_seconds - began)

    def start(self, span: str) -> None:
        """Start to count a named span until the end of this attempt, unless it is already being counted."""
        self._running.setdefault(span, self.attempt_seconds)

    @contextmanager
    def counting(self, span: str) -> Iterator[None]:
        """Count the time of the block as part of a named span, even if the block raises."""
        self.start(span)
        try:
            yield
        finally:
            used = self.seconds_of(span)
            del self._running[span]  # first, so that no other thread counts it twice
            self._spans[span] = used

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time of the block, for instance a wait for other training jobs."""
        began = self._now()
        try:
            yield
        finally:
            self._paused += self._now() - began

    def count_anew(self) -> None:
        """Reset seconds and spans to zero; only the wall-clock seconds still include earlier attempts."""
        self._earlier_paused += self._earlier
        self._earlier = 0.0
        self._paused += self.attempt_seconds
        self._spans.clear()
        self._running = dict.fromkeys(self._running, 0.0)

    @contextmanager
    def kept_in(self, directory: Path) -> Iterator[None]:
        """Continue the clock that an earlier attempt saved in a folder, and save it there during the block.

        Raises:
            CheckpointError: The clock cannot be written, for instance because the disk is full.
        """
        directory.mkdir(parents=True, exist_ok=True)
        if self._file is None:
            self._file = directory / CLOCK_FILE
            self._read(self._file)
        with periodic(self.save):
            try:
                yield
            except BaseException:
                with suppress(ShunterError):  # the first error is the one to report
                    self.save()
                raise
        self.save()

    def save(self) -> None:
        """Write the clock to its file; do nothing if the clock has no file.

        Raises:
            CheckpointError: The clock cannot be written, for instance because the disk is full.
        """
        if self._file is None:
            return
        with self._saving:
            spans = {span: self.seconds_of(span) for span in {*self._spans, *self._running}}
            paused = self._earlier_paused + self._paused
            write_json(self._file, json.dumps({"seconds": self.seconds, "paused": paused, "spans": spans}))

    def _read(self, file: Path) -> None:
        """Add the times of an earlier attempt; a missing or damaged file counts as no attempt."""

        def parse(text: bytes) -> tuple[float, float, dict[str, float]]:
            kept = json_object(text)
            spans = {span: float(used) for span, used in kept["spans"].items()}
            return float(kept["seconds"]), float(kept.get("paused", 0.0)), spans

        self._earlier, self._earlier_paused, spans = read_or_quarantine(file, parse) or (0.0, 0.0, {})
        for span, used in spans.items():
            self._spans[span] = self._spans.get(span, 0.0) + used


@dataclass(frozen=True)
class StopConditions:
    """Conditions that end a training run or a search, with the clock that they read.

    Attributes:
        clock: Clock of the command.
        conditions: Functions that return a reason once they are met; the first condition that is met counts.
    """

    clock: RunClock
    conditions: tuple[ShouldStop, ...] = ()

    def check(self) -> StopReason | None:
        """Return why the work ends, or None to continue; fast enough for each step of a training run."""
        return next((reason for condition in self.conditions if (reason := condition()) is not None), None)

    def also(self, condition: ShouldStop | None) -> Self:
        """Return the stop conditions plus another condition."""
        return self if condition is None else replace(self, conditions=(*self.conditions, condition))

    def without(self, condition: ShouldStop | None) -> Self:
        """Return the stop conditions without a given condition."""
        return replace(self, conditions=tuple(one for one in self.conditions if one is not condition))


def time_limit(clock: RunClock, span: str, seconds: float, then: StopReason | ShouldStop) -> ShouldStop:
    """Return a condition that is met once a span has used its time; the span begins with the first check.

    `then` is the reason to return, or a condition that is checked from then on.
    """

    def condition() -> StopReason | None:
        clock.start(span)
        if clock.seconds_of(span) < seconds:
            return None
        return then if isinstance(then, StopReason) else then()

    return condition


class EnergyLimit:
    """Condition that is met once the energy limit of some work is used up, or if no meter can measure its energy.

    Args:
        clock: Clock of the command.
        kind: Kind of the stop reason to return.
        joules: Returns the joules used so far; None if no meter can measure them.
        max_joules: Energy limit.
        unavailable: Returns why no meter can measure the energy.
        settle_seconds: Time after which the first reading of the meter is meaningful.
    """

    def __init__(
        self,
        clock: RunClock,
        kind: StopKind,
        joules: Callable[[], float | None],
        max_joules: float,
        unavailable: Callable[[], str] = lambda: "no meter of energy works here",
        *,
        settle_seconds: float = ENERGY_INTERVAL_SECONDS,
    ) -> None:
        self._clock, self._kind, self._joules, self._unavailable = clock, kind, joules, unavailable
        self.max_joules = max_joules
        self._ask_at = clock.attempt_seconds + settle_seconds
        self._answer: StopReason | None = None

    def __call__(self) -> StopReason | None:
        """Return the stop reason once the limit is used up, else None; the meter is read often only near the limit."""
        now = self._clock.attempt_seconds
        if now >= self._ask_at:
            used = self._joules()
            left_seconds = (self.max_joules - used) * now / used if used else ENERGY_INTERVAL_SECONDS
            self._ask_at = now + min(ENERGY_INTERVAL_SECONDS, max(LEAST_ENERGY_INTERVAL_SECONDS, left_seconds))
            details: dict[str, float | str] = {"kwh": self.max_joules / JOULES_PER_KWH}
            if used is None:  # a limit that nothing can measure ends the work at once
                details["unavailable"] = self._unavailable()
            is_kept = used is not None and used < self.max_joules
            self._answer = None if is_kept else StopReason(self._kind, StopLimit.ENERGY, details)
        return self._answer


class Meter(Protocol):
    """Interface of a running energy meter, such as `shunter.hardware.meters.meter.EnergyMeter`."""

    @property
    def reading(self) -> "EnergyReading":
        """Return the total energy reading so far."""
        ...

    def joules_so_far(self) -> float | None:
        """Return the energy used so far in joules; None if no meter can measure it."""


class Budget:
    """Limits of a request on the time, energy and money of a command, from the start of its process to its end.

    Training runs may use these limits minus a reserve for the last steps of the command.

    Args:
        clock: Clock of the command.
        meter: Running energy meter of this attempt.
        max_seconds: Longest wall-clock time.
        max_joules: Largest energy.
        max_cost: Largest cost, by exact time; requires `price_per_hour`.
        price_per_hour: Price of the machine, in the user's currency.
        used_joules: Joules that earlier attempts, and this attempt before the meter was entered, have used.

    Attributes:
        ending_seconds: Reserved seconds for the steps after the training runs and the end of the process.
    """

    def __init__(
        self,
        *,
        clock: RunClock,
        meter: Meter,
        max_seconds: float | None = None,
        max_joules: float | None = None,
        max_cost: float | None = None,
        price_per_hour: float | None = None,
        used_joules: float = 0.0,
    ) -> None:
        assert max_cost is None or price_per_hour is not None, "a limit on cost needs the price"
        self._clock, self._meter, self._used_joules = clock, meter, used_joules
        self.max_seconds, self.max_joules, self.max_cost = max_seconds, max_joules, max_cost
        self.price_per_hour, self.ending_seconds = price_per_hour, 0.0
        self._energy: ShouldStop = lambda: None
        if max_joules is not None:
            self._energy = EnergyLimit(
                clock, StopKind.LIMIT, self._joules_at_end, max_joules, lambda: meter.reading.source
            )

    @property
    def is_limited(self) -> bool:
        """Return True if time, energy or cost has a limit."""
        return any(limit is not None for limit in (self.max_seconds, self.max_joules, self.max_cost))

    @property
    def seconds(self) -> float:
        """Seconds of the command so far, earlier attempts included."""
        return self._clock.seconds

    @property
    def joules(self) -> float | None:
        """Energy that the command has used so far in joules, including earlier attempts; None if not measurable."""
        joules = self._meter.joules_so_far()
        return None if joules is None else self._used_joules + joules

    def joules_since(self, earlier: float | None) -> float | None:
        """Return the energy used since an earlier value of `joules`; None if one of the values is unknown."""
        return None if (now := self.joules) is None or earlier is None else now - earlier

    @property
    def left_joules(self) -> float | None:
        """Joules left for training runs; None without a limit, or if no meter can count them."""
        used = self._joules_at_end()
        return None if self.max_joules is None or used is None else self.max_joules - used

    @property
    def cost(self) -> float | None:
        """Cost so far, in the user's currency; None without a price."""
        return None if self.price_per_hour is None else self.seconds / 3600 * self.price_per_hour

    @property
    def left_seconds(self) -> float:
        """Seconds left for training runs until the first limit, at the mean power so far; infinite without a limit."""
        return max(0.0, min((seconds for seconds, _ in self._ends()), default=math.inf))

    @property
    def first_limit(self) -> StopReason:
        """Reason of the limit that is reached first; at least one limit must be set."""
        return min(self._ends(), key=lambda end: end[0])[1]

    def exhausted(self) -> StopReason | None:
        """Return the reason to stop if a limit is used up; None if the command may continue."""
        reached = next((reason for seconds, reason in self._clock_ends() if seconds <= 0), None)
        return reached or self._energy()

    def _ends(self) -> list[tuple[float, StopReason]]:
        """Return the seconds left for training runs by each limit, with its reason."""
        ends = self._clock_ends()
        if self.max_joules is not None and (left := self.left_joules) is not None:
            used = self.joules
            seconds = left * self.seconds / used if used else math.inf
            ends.append(
                (seconds, StopReason(StopKind.LIMIT, StopLimit.ENERGY, {"kwh": self.max_joules / JOULES_PER_KWH}))
            )
        return ends

    def _clock_ends(self) -> list[tuple[float, StopReason]]:
        """Return the seconds left by the limits on time and cost."""
        at_end = self.seconds + self.ending_seconds
        ends = []
        if self.max_seconds is not None:
            reason = StopReason(StopKind.LIMIT, StopLimit.TIME, {"hours": self.max_seconds / 3600})
            ends.append((self.max_seconds - at_end, reason))
        if self.max_cost is not None and self.price_per_hour is not None:
            reason = StopReason(StopKind.LIMIT, StopLimit.COST, {"cost": self.max_cost})
            ends.append((self.max_cost / self.price_per_hour * 3600 - at_end, reason))
        return ends

    def _joules_at_end(self) -> float | None:
        """Return the joules so far plus those expected for the end of the command, at the mean power so far."""
        used, seconds = self.joules, self.seconds
        return used if used is None or seconds <= 0 else used * (1 + self.ending_seconds / seconds)
