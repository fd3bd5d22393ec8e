"""When a running training moves: only for what is better, free, and worth a move."""

import pytest

from engine.executors.ray.upgrade import LEAST_SECONDS_LEFT, BetterFreeError, Choice, Upgrade
from engine.job import Hooks
from hardware.types import Placement


def at(node: str) -> Placement:
    return Placement(accelerator=f"cpu@{node}", threads=1, precision="fp32", batch_size=64)


FREE = {"fast", "slow", "hardly"}


def moved_to(here: Choice, others: list[Choice], *, step_seconds: float = 10.0, steps: int = 100) -> str | None:
    """Where a training of 100 steps is moved to after so many of them at this pace."""
    now = [0.0]
    upgrade = Upgrade(here, others, lambda placement: placement.node in FREE, lambda: now[0])
    hooks = upgrade.watching(Hooks(should_stop=lambda: None))
    for done in range(1, steps + 1):
        now[0] += step_seconds
        if hooks.on_step:
            hooks.on_step(done, 100)
        try:
            assert hooks.should_stop is not None
            hooks.should_stop()
        except BetterFreeError as better:
            return better.placement.node
    return None


HERE = Choice(at("here"), 4.0)


def test_it_moves_to_the_best_that_is_free() -> None:
    choices = [Choice(at("taken"), 1.0), Choice(at("slow"), 3.0), Choice(at("fast"), 2.0)]
    assert moved_to(HERE, choices) == "fast"
    assert moved_to(HERE, choices[:1]) is None, "it is taken"


@pytest.mark.parametrize(
    ("others", "step_seconds"),
    [
        ([Choice(at("fast"), 5.0)], 10.0),  # worse
        ([Choice(at("hardly"), 3.9)], 10.0),  # too little
        ([Choice(at("fast"), 2.0)], LEAST_SECONDS_LEFT / 200),  # soon at its end
        ([Choice(at("fast"), float("inf"))], 10.0),  # unknown
    ],
)
def test_it_stays_where_a_move_does_not_pay(others: list[Choice], step_seconds: float) -> None:
    assert moved_to(HERE, others, step_seconds=step_seconds) is None
