"""An exploration ends a night's training; without one only the night's own reasons do."""

import pytest

from shunter.engine.stopping import StopKind, StopLimit, StopReason
from shunter.hardware.types import Placement
from shunter.planner.decide import Exploration
from shunter.tasks import challenger
from shunter.tasks.challenger import ending_with
from tests.engine.reasons import ENOUGH

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
EXPLORATION = Exploration(best_known=PLACEMENT, stop_multiple=2.0, stop_hours=0.5)


def test_an_exploration_ends_at_its_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(challenger.time, "monotonic", lambda: now[0])
    stop = ending_with(EXPLORATION, lambda: None)
    now[0] += 1_799
    assert stop() is None
    now[0] += 1
    assert stop() == StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": 2.0})


def test_the_nights_own_reasons_come_first() -> None:
    assert ending_with(None, lambda: ENOUGH)() == ENOUGH
    assert ending_with(EXPLORATION, lambda: ENOUGH)() == ENOUGH
