"""What is free is begun on if nothing that is waited for would be through earlier, by the user's objective."""

import pytest

from shunter.hardware.types import Placement
from shunter.planner.waiting import is_better_now
from tests.planner.test_redecide import decision


def one_core(placement: Placement) -> bool:
    return placement.threads == 1


@pytest.mark.parametrize(
    ("objective", "wait_hours", "begins"),
    [
        pytest.param("time", 0.6, True, id="an hour on one core ends before 0.6 h of waiting and half an hour on two"),
        pytest.param("time", 0.4, False, id="0.4 h of waiting and half an hour end earlier"),
        pytest.param("energy", 0.0, True, id="one core needs less energy, wherever there are two"),
        pytest.param("edp", 0.2, True, id="10 Wh in 1 h against 15 Wh in 0.7 h"),
        pytest.param("edp", 0.1, False, id="10 Wh in 1 h against 15 Wh in 0.6 h"),
    ],
)
def test_the_wait_counts_as_time_of_the_job(objective: str, wait_hours: float, begins: bool) -> None:
    assert is_better_now(decision(objective), one_core, {"cpu": wait_hours}) is begins


def test_without_anything_free_or_feasible_it_waits() -> None:
    assert not is_better_now(decision(), lambda _: False, {"cpu": 1.0})
    assert not is_better_now(decision(), one_core, {})  # the rest is free by now
