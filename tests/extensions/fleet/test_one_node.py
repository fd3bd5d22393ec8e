"""The policy of a fleet over the accelerators of one machine."""

import pytest

from shunter.engine.executors.move_monitor import TrainingProgress
from shunter.extensions.fleet.one_node import select_upgrade

TOTALS = {"cpu x1": 4.0, "cpu x2": 2.0, "cuda:0": 1.0}


@pytest.mark.parametrize(
    ("free", "share", "left", "start", "found"),
    [
        pytest.param(("cpu x2", "cuda:0"), 0.1, 400.0, 10.0, "cuda:0", id="the fastest that is free"),
        pytest.param(("cpu x2",), 0.1, 400.0, 10.0, "cpu x2", id="the best of what is free"),
        pytest.param((), 0.1, 400.0, 10.0, None, id="nothing is free"),
        pytest.param(("cpu x2",), 0.9, 40.0, 10.1, None, id="it saves 20 s, and a move would have to save 20.2"),
        pytest.param(("cpu x2",), 0.9, 40.0, 9.9, "cpu x2", id="or 19.8"),
    ],
)
def test_it_moves_where_that_saves_twice_what_the_move_takes(
    free: tuple[str, ...], share: float, left: float, start: float, found: str | None
) -> None:
    totals = {name: TOTALS[name] for name in ("cpu x1", *free)}
    assert select_upgrade(totals, "cpu x1", TrainingProgress(share, left, start)) == found


def test_from_the_fastest_it_goes_nowhere() -> None:
    assert select_upgrade(TOTALS, "cuda:0", TrainingProgress(0.0, 1000.0, 0.1)) is None
