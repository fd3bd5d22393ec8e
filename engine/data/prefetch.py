"""Bounded background reader: the next batches are made while the current batch is computed."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from shunter.hardware.devices.openmp import work_without_team

Item = TypeVar("Item")


class _End:
    """Marker of the end of the source, with the exception that ended it, if any."""

    def __init__(self, exception: BaseException | None = None) -> None:
        self.exception = exception


class Prefetcher(Generic[Item]):
    """Iterator over a source that is read in a background thread, at most `depth` items ahead.

    The order is kept. An exception of the source is raised in the consumer, with the source's traceback, after the
    items before it. Use it in a `with` statement: leaving the block, early or not, ends the thread and closes the
    source.

        with Prefetcher(loader.batches(), depth=2) as batches:
            for batch in batches: ...

    Attributes:
        load_seconds: Time that the source took to make the items.
        wait_seconds: Time that the consumer waited for items.
        compute_seconds: Time that the consumer took between receiving an item and requesting the next.
        items_computed: Number of items counted in `compute_seconds`.
        depth: Largest number of prefetched items; may be changed at any time.

    Args:
        source: Source to iterate; a generator is closed at the end.
        depth: Largest number of prefetched items.
        prepare: Applied to each item in the background thread, for instance to start a copy to the device.
        receive: Applied to each result of `prepare` when it is handed out, in the consumer's thread.
    """

    def __init__(
        self,
        source: Iterable[Item],
        *,
        depth: int,
        prepare: Callable[[Item], Any] | None = None,
        receive: Callable[[Any], Item] | None = None,
    ) -> None:
        assert depth >= 1, "the depth counts the items held ready, at least 1"
        self.load_seconds = self.wait_seconds = self.compute_seconds = 0.0
        self.items_computed = 0
        self._source = iter(source)
        self._prepare, self._receive = prepare, receive
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=depth)
        self._stopping = threading.Event()
        self._handed_out_at: float | None = None
        self._thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        asked_at = time.perf_counter()
        if self._handed_out_at is not None:
            self.compute_seconds += asked_at - self._handed_out_at
            self.items_computed += 1
            self._handed_out_at = None
        item = self._queue.get() if not self._stopping.is_set() else _End()
        received_at = time.perf_counter()
        self.wait_seconds += received_at - asked_at
        if isinstance(item, _End):
            self._stopping.set()
            if item.exception is not None:
                raise item.exception
            raise StopIteration
        self._handed_out_at = received_at
        return item if self._receive is None else self._receive(item)

    @property
    def depth(self) -> int:
        """Largest number of prefetched items."""
        return self._queue.maxsize

    @depth.setter
    def depth(self, items: int) -> None:
        assert items >= 1, "the depth counts the items held ready, at least 1"
        with self._queue.mutex:
            self._queue.maxsize = items
            self._queue.not_full.notify_all()

    def close(self) -> None:
        """End the thread in any state; items that were not consumed are dropped. May be called twice."""
        self._stopping.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()  # unblocks a thread that waits for room in the queue
            except queue.Empty:
                self._thread.join(timeout=0.005)

    def _fill(self) -> None:
        work_without_team()
        end = _End()
        try:
            while not self._stopping.is_set():
                started = time.perf_counter()
                item = next(self._source, end)
                if not isinstance(item, _End) and self._prepare is not None:
                    item = self._prepare(item)
                self.load_seconds += time.perf_counter() - started
                if isinstance(item, _End):
                    break
                self._queue.put(item)
        except BaseException as error:  # raised again in the consumer
            end = _End(error)
        finally:
            close = getattr(self._source, "close", None)
            if close is not None:
                close()
            self._queue.put(end)
