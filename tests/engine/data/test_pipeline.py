"""Depth and readers follow the formula; order, bounds and errors hold with any number of readers."""

import math
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.data.loader import BatchLoader
from shunter.engine.data.pipeline import (
    DEEPEST,
    MOST_READERS,
    DeviceCopy,
    Prefetcher,
    PrefetchPlan,
    ReadAhead,
    plan_prefetch,
)
from tests.engine.synthetic import write_dataset

SECONDS = st.floats(1e-6, 10)


@given(load=st.lists(SECONDS, min_size=1, max_size=30), compute=SECONDS)
def test_the_plan_is_within_bounds_and_never_less_for_slower_reading(load: list[float], compute: float) -> None:
    plan = plan_prefetch(load, compute)
    assert 2 <= plan.depth <= DEEPEST
    assert 1 <= plan.readers <= MOST_READERS
    slower = plan_prefetch([2 * seconds for seconds in load], compute)
    assert slower.depth >= plan.depth
    assert slower.readers >= plan.readers
    if plan.readers < MOST_READERS:  # they keep up
        assert math.fsum(load) / len(load) / plan.readers <= compute * 1.000001


@pytest.mark.parametrize(
    ("load", "compute", "depth", "readers"), [(0.5, 1.0, 2, 1), (1.0, 1.0, 2, 1), (2.5, 1.0, 4, 3), (90.0, 1.0, 16, 8)]
)
def test_the_plan_for_steady_times_is_that_of_the_formula(
    load: float, compute: float, depth: int, readers: int
) -> None:
    assert plan_prefetch([load] * 20, compute) == PrefetchPlan(depth=depth, readers=readers)


@settings(max_examples=12, deadline=None)
@given(keys=st.lists(st.integers(0, 5), max_size=40), readers=st.integers(1, 5))
def test_any_number_of_readers_keeps_the_order(keys: list[int], readers: int) -> None:
    def read(key: int) -> int:
        time.sleep(key * 1e-4)
        return -key

    ahead: ReadAhead[int, int] = ReadAhead(read, depth=2)
    ahead.plan = PrefetchPlan(depth=2, readers=readers)
    assert list(ahead.items(keys)) == [-key for key in keys]


class Clock:
    """A time of its own for each thread, which passes only while something sleeps."""

    def __init__(self) -> None:
        self._local = threading.local()

    def __call__(self) -> float:
        return getattr(self._local, "seconds", 0.0)

    def sleep(self, seconds: float) -> None:
        self._local.seconds = self() + seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What reading and computing are measured by: on a busy machine real sleeps last as long as they please."""
    clock = Clock()
    monkeypatch.setattr("shunter.engine.data.pipeline.perf_counter", clock)
    return clock


def test_slow_reading_gets_readers_and_depth_and_fast_reading_gives_them_back(clock: Clock) -> None:
    delay = [0.02]

    def read(key: int) -> int:
        clock.sleep(delay[0])
        return key

    ahead: ReadAhead[int, int] = ReadAhead(read, depth=2)
    seen: list[PrefetchPlan] = []
    with Prefetcher(ahead.items(range(600)), depth=2) as items:
        ahead.follow(items)
        for item in items:
            clock.sleep(0.004)
            seen.append(ahead.plan)
            if item == 100:
                delay[0] = 0.0
    assert max(plan.readers for plan in seen) >= 3
    assert max(plan.depth for plan in seen) >= 4
    assert items.depth == ahead.plan.depth
    assert ahead.plan.readers == 1


def test_a_fixed_depth_stays_whatever_is_measured(clock: Clock) -> None:
    ahead: ReadAhead[int, int] = ReadAhead(lambda key: clock.sleep(0.005) or key, depth=3, fixed_depth=True)
    with Prefetcher(ahead.items(range(60)), depth=3) as items:
        ahead.follow(items)
        assert list(items) == list(range(60))
        assert items.depth == ahead.plan.depth == 3
    assert ahead.plan.readers > 1


def test_an_error_comes_after_the_items_before_it_and_the_readers_end() -> None:
    def read(key: int) -> int:
        if key == 5:
            raise ValueError("key five")
        return key

    ahead: ReadAhead[int, int] = ReadAhead(read, depth=2)
    ahead.plan = PrefetchPlan(depth=2, readers=4)
    got: list[int] = []

    def consume() -> None:
        with Prefetcher(ahead.items(range(100)), depth=2) as items:
            got.extend(items)

    with pytest.raises(ValueError, match="key five"):
        consume()
    assert got == [0, 1, 2, 3, 4]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("reader", "prefetch"))]


def test_leaving_early_ends_all_threads() -> None:
    ahead: ReadAhead[int, int] = ReadAhead(lambda key: key, depth=2)
    ahead.plan = PrefetchPlan(depth=2, readers=3)

    def endless() -> Iterator[int]:
        yield from range(10**9)

    with Prefetcher(ahead.items(endless()), depth=2) as items:
        assert next(items) == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("reader", "prefetch"))]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_arrive_on_the_device_unchanged(tmp_path: Path) -> None:
    loader = BatchLoader(write_dataset(tmp_path, rows=500), "train", 64)
    copy = DeviceCopy(torch.device("cuda:0"))
    with Prefetcher(loader.batches(), depth=3, prepare=copy.send, receive=copy.receive) as batches:
        for expected, got in zip(loader.batches(), batches, strict=True):
            assert torch.equal(got.values.cpu(), expected.values)
            assert torch.equal(got.dense.cpu(), expected.dense)


def prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@settings(max_examples=12, deadline=None)
@given(items=st.lists(st.integers()), depth=st.integers(1, 5))
def test_every_item_comes_once_and_in_order(items: list[int], depth: int) -> None:
    with Prefetcher(items, depth=depth) as prefetched:
        assert list(prefetched) == items
        assert list(prefetched) == []
    assert not prefetch_threads()


def test_the_source_is_never_more_than_depth_items_ahead() -> None:
    made, taken = [], 0

    def source() -> Iterator[int]:
        for item in range(50):
            # one in the consumer's hands, `depth` in the queue, one that waits for room
            assert item - taken <= 1 + 3 + 1
            made.append(item)
            yield item

    with Prefetcher(source(), depth=3) as prefetched:
        for _ in prefetched:
            taken += 1
    assert made == list(range(50))


def test_an_exception_of_the_source_is_raised_with_its_traceback() -> None:
    def failing_source() -> Iterator[int]:
        yield 1
        raise ValueError("broken disk")

    with Prefetcher(failing_source(), depth=4) as prefetched, pytest.raises(ValueError, match="broken disk") as caught:
        list(prefetched)
    assert "failing_source" in "".join(traceback.format_tb(caught.tb))
    assert not prefetch_threads()


def test_items_before_an_exception_are_handed_out() -> None:
    def failing_source() -> Iterator[int]:
        yield 1
        raise ValueError("broken disk")

    with Prefetcher(failing_source(), depth=4) as prefetched:
        assert next(prefetched) == 1
        with pytest.raises(ValueError, match="broken disk"):
            next(prefetched)


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_stopping_early_ends_the_thread_and_closes_the_source(taken: int) -> None:
    begun, closed = threading.Event(), threading.Event()

    def endless() -> Iterator[int]:
        begun.set()
        try:
            item = 0
            while True:
                yield (item := item + 1)
        finally:
            closed.set()

    with Prefetcher(endless(), depth=2) as prefetched:
        for _ in range(taken):
            next(prefetched)
    assert begun.is_set() or not taken, "what nobody has asked yet may not have begun"
    assert closed.is_set() == begun.is_set()
    assert not prefetch_threads()
    prefetched.close()
    assert list(prefetched) == []


def test_a_failing_consumer_ends_the_thread() -> None:
    def consume() -> None:
        with Prefetcher(iter(range(10**9)), depth=2) as prefetched:
            next(prefetched)
            raise RuntimeError("consumer")

    with pytest.raises(RuntimeError, match="consumer"):
        consume()
    assert not prefetch_threads()


def test_preparation_happens_in_the_thread() -> None:
    names = []

    def prepare(item: int) -> int:
        names.append(threading.current_thread().name)
        return item * 10

    with Prefetcher([1, 2], depth=1, prepare=prepare) as prefetched:
        assert list(prefetched) == [10, 20]
    assert set(names) == {"prefetch"}


def test_times_are_counted_where_they_pass() -> None:
    def slow_source() -> Iterator[int]:
        yield 1
        time.sleep(0.2)
        yield 2

    with Prefetcher(slow_source(), depth=1) as prefetched:
        assert list(prefetched) == [1, 2]
        assert prefetched.load_seconds >= 0.2  # the source slept that long
        assert prefetched.wait_seconds > 0
        assert prefetched.compute_seconds > 0
