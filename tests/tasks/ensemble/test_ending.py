"""What the end of a command is foreseen to take: as past runs of the same data took, else as long as the beginning."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shunter.errors import TrackingError
from shunter.requests import TrainRequest
from shunter.search.minutes import Minutes
from shunter.tasks.ensemble import ending
from shunter.tasks.ensemble.ending import LATE_SECONDS, STEPS, reserve_ending
from shunter.tasks.step_clock import StepClock
from shunter.tracking.convention import STEP_SECONDS
from tests.engine.reasons import HandClock

RUN = cast("Any", SimpleNamespace(dataset=SimpleNamespace(fingerprint="abc"), request=TrainRequest(model="dnn")))


def past(seconds: float, *, status: str = "FINISHED", data: str = "abc", model: str = "dnn", steps: Any = STEPS) -> Any:
    """A run whose end took so long, a quarter of it in each step."""
    metrics = {STEP_SECONDS.format(step): seconds / 4 for step in steps} | {STEP_SECONDS.format("tune"): 900.0}
    params = {"data.fingerprint": data, "request.model": model}
    return SimpleNamespace(status=status, params=params, metrics=metrics)


def beginning(rest: float, measured: float = 0.0) -> StepClock:
    clock = StepClock(before=rest + measured, now=lambda: 0.0)
    clock.seconds["profile"] = measured
    return clock


def foreseen() -> tuple[float, str]:
    minutes = Minutes(HandClock(), 300.0)
    reserve_ending(minutes, RUN, beginning(42.0, measured=30.0))
    return minutes.ending_seconds, minutes.ending_from


def test_the_longest_of_the_latest_runs_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [past(99, status="FAILED"), past(99, data="other"), past(99, model="auto"), past(99, steps=STEPS[:2])]
    runs = [*others, past(8), past(12), past(10), past(80)]
    monkeypatch.setattr(ending, "read_runs", lambda *_, **__: runs)
    assert foreseen() == (12 + LATE_SECONDS, "by 3 earlier runs on this data")
    runs[-4:] = [past(7)]
    assert foreseen() == (7 + LATE_SECONDS, "by 1 earlier run on this data")


def test_without_such_a_run_as_much_as_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "read_runs", lambda *_, **__: [])
    assert foreseen() == (42, "as much as the beginning took")

    def away(*_: Any, **__: Any) -> Any:
        raise TrackingError("away")

    monkeypatch.setattr(ending, "read_runs", away)
    assert foreseen()[0] == 42
    unlimited = Minutes(HandClock(), None)
    reserve_ending(unlimited, RUN, beginning(42.0))
    assert unlimited.ending_seconds == 0
