"""Trainings side by side: each on an executor of its own, in their order, and none once a limit is reached."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pytest

from shunter.engine.executors.role import ComputeTarget
from shunter.hardware.types import Placement
from shunter.tasks.ensemble import side_by_side as module
from shunter.tasks.ensemble.side_by_side import side_by_side

PLACEMENT = Placement(accelerator="cpu", threads=2, precision="fp32", batch_size=64)


def number_of(number: int, place: ComputeTarget | None = None) -> int:
    return number


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(placement: Placement, count: int, place: ComputeTarget | None) -> Iterator[Sequence[Any]]:
        yield [f"executor-{number}" for number in range(count)]

    monkeypatch.setattr(module, "open_executors", opened)


@pytest.mark.usefixtures("executors")
@pytest.mark.parametrize("count", [2, 3])
def test_each_has_an_executor_of_its_own_while_it_trains(count: int) -> None:
    busy: set[str] = set()
    together, lock = threading.Barrier(count, timeout=30), threading.Lock()

    def training(number: int, place: ComputeTarget | None = None) -> int:
        assert place is not None
        own = cast("str", place.executor(PLACEMENT))
        with lock:
            assert own not in busy
            busy.add(own)
        if number < count:
            together.wait()  # so many do train at a time
        with lock:
            busy.remove(own)
        return number

    trainings = [partial(training, number) for number in range(5)]
    assert side_by_side(trainings, PLACEMENT, count, None) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("executors")
def test_what_one_raises_reaches_the_caller() -> None:
    def fails(place: ComputeTarget | None = None) -> int:
        raise ValueError("of the second")

    with pytest.raises(ValueError, match="of the second"):
        side_by_side([partial(number_of, 0), fails], PLACEMENT, 2, None)
