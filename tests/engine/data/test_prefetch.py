"""Order, bounds, exceptions and clean ends of the background reader."""

import threading
import time
import traceback
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.data.prefetch import Prefetcher


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
