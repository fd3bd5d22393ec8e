"""Ends of trainings as Ctrl-C brings them, and what a training that went on is compared with."""

from collections.abc import Callable

from shunter.engine.results import TrainResult


def interrupt_at(last: int | None) -> Callable[[int, int], None]:
    """Return a hook that interrupts a training after a step; after none, it goes on."""

    def interrupt(step: int, _: int) -> None:
        if step == last:
            raise KeyboardInterrupt

    return interrupt


def assert_same_weights(one: TrainResult, other: TrainResult) -> None:
    ours, theirs = one.model.state_dict(), other.model.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].equal(theirs[name]), name
