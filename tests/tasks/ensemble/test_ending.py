"""Prediction of the end of a command: by past runs of the same data and by the pace, else as long as the beginning."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from shunter.errors import TrackingError
from shunter.requests import TrainRequest
from shunter.search.minutes import Minutes
from shunter.tasks.ensemble import ending
from shunter.tasks.ensemble.ending import LATE_SECONDS, SPREAD, STEPS, TRAINED_SECONDS, expected_ending, reserve_ending
from shunter.tasks.step_clock import StepClock
from shunter.tracking.convention import STEP_SECONDS, TRIAL_OF_MEMBER
from tests.engine.reasons import HandClock

RUN = cast("Any", SimpleNamespace(dataset=SimpleNamespace(fingerprint="abc"), request=TrainRequest(model="dnn")))


@pytest.fixture(autouse=True)
def children(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Trials and members of each past run, none unless a test adds them."""
    found: dict[str, list[Any]] = {"trial": [], "member": []}
    monkeypatch.setattr(ending, "read_children", lambda run_id, kind: found[kind])
    return found


def past(
    seconds: float,
    *,
    status: str = "FINISHED",
    data: str = "abc",
    model: str = "dnn",
    steps: Any = STEPS,
    **others: float,
) -> Any:
    """A run whose end took so long, a quarter of it in each step."""
    own = {**dict.fromkeys(steps, seconds / 4), "tune": 900.0, **others}
    metrics = {STEP_SECONDS.format(step): value for step, value in own.items()}
    params = {"data.fingerprint": data, "request.model": model}
    return SimpleNamespace(run_id="", status=status, params=params, metrics=metrics)


def child(seconds: float, trained_seconds: float = 0.0, **tags: str) -> Any:
    return SimpleNamespace(started_at=0.0, ended_at=seconds, metrics={TRAINED_SECONDS: trained_seconds}, tags=tags)


def reserved(seconds: float) -> Any:
    return pytest.approx((1 + SPREAD) * seconds + LATE_SECONDS)


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
    assert foreseen() == (reserved(12), "from 3 earlier runs on this data")
    runs[-4:] = [past(7)]
    assert foreseen() == (reserved(7), "from 1 earlier run on this data")


def test_a_slower_machine_needs_more_for_the_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "read_runs", lambda *_, **__: [past(8, start=4.0), past(12, start=8.0)])
    data, request = RUN.dataset, RUN.request
    assert [expected_ending(data, request, beginning(start))[0] for start in (3.0, 4.0, 8.0)] == [
        reserved(12),
        reserved(12),
        reserved(16),
    ]
    assert expected_ending(data, request, beginning(4000.0))[0] == reserved(3 * 12), "at most three times as long"


def test_what_follows_the_last_step_of_a_training_is_part_of_the_end(
    monkeypatch: pytest.MonkeyPatch, children: dict[str, list[Any]]
) -> None:
    run = past(8)
    run.metrics["search.seconds"] = 898.0
    monkeypatch.setattr(ending, "read_runs", lambda *_, **__: [run])
    children["trial"] += [child(9.0, 2.0), child(2.5, 2.0)]
    children["member"] += [child(60.0, 50.0), child(0.25, 2.0, **{TRIAL_OF_MEMBER: "trial-1"})]
    assert foreseen()[0] == reserved(8 + 0.5 + 2.0 + 0.25)


def test_without_such_a_run_as_much_as_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "read_runs", lambda *_, **__: [])
    assert foreseen() == (42, "as long as the steps before training")

    def away(*_: Any, **__: Any) -> Any:
        raise TrackingError("away")

    monkeypatch.setattr(ending, "read_runs", away)
    assert foreseen()[0] == 42
    unlimited = Minutes(HandClock(), None)
    reserve_ending(unlimited, RUN, beginning(42.0))
    assert unlimited.ending_seconds == 0
