"""Input pipeline from files to device: background reader, adaptive prefetch depth, and asynchronous copies to a GPU."""

import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch

from shunter.engine.data.batch import Batch
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
        asked_at = perf_counter()
        if self._handed_out_at is not None:
            self.compute_seconds += asked_at - self._handed_out_at
            self.items_computed += 1
            self._handed_out_at = None
        item = self._queue.get() if not self._stopping.is_set() else _End()
        received_at = perf_counter()
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
                started = perf_counter()
                item = next(self._source, end)
                if not isinstance(item, _End) and self._prepare is not None:
                    item = self._prepare(item)
                self.load_seconds += perf_counter() - started
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


Key = TypeVar("Key")
DEEPEST = 16
MOST_READERS = 8
LOADS_REMEMBERED = 256
ITEMS_BETWEEN_PLANS = 16


@dataclass(frozen=True, kw_only=True)
class PrefetchPlan:
    """Prefetch settings: number of prefetched batches, and of threads that read at the same time."""

    depth: int
    readers: int


def plan_prefetch(load_seconds: Sequence[float], compute_seconds: float) -> PrefetchPlan:
    """Return the prefetch settings for measured times: readers that keep up with the step, and a queue for a slow read.

    Let l be the mean time to load a batch, l_p95 its 95th percentile, and c the time to compute a step. The result is
    ceil(l_p95 / c) + 1 prefetched batches and ceil(l / c) readers, at most `DEEPEST` and `MOST_READERS`.

    Args:
        load_seconds: Time that one reader took for each recent batch, in seconds; at least one value.
        compute_seconds: Mean time between receiving a batch and requesting the next.
    """
    compute_seconds = max(compute_seconds, 1e-9)
    slow_seconds = float(np.percentile(load_seconds, 95))
    return PrefetchPlan(
        depth=min(DEEPEST, math.ceil(slow_seconds / compute_seconds) + 1),
        readers=max(1, min(MOST_READERS, math.ceil(float(np.mean(load_seconds)) / compute_seconds))),
    )


class ReadAhead(Generic[Key, Item]):
    """Background reader of items by their keys that adapts its number of readers and its depth to measured times.

    Items come in the order of the keys, whatever the number of readers.

    Args:
        read: Makes an item from a key; called in several threads at a time.
        depth: Number of prefetched items until times are measured.
        fixed_depth: Whether `depth` never changes, because other code depends on it.

    Attributes:
        plan: Current prefetch settings.
    """

    def __init__(self, read: Callable[[Key], Item], *, depth: int, fixed_depth: bool = False) -> None:
        self.plan = PrefetchPlan(depth=depth, readers=1)
        self._read = read
        self._fixed_depth = fixed_depth
        self._load_seconds: deque[float] = deque(maxlen=LOADS_REMEMBERED)
        self._prefetcher: Prefetcher[Any] | None = None

    def items(self, keys: Iterable[Key]) -> Iterator[Item]:
        """Yield items in order; iterated by the background thread of a `Prefetcher`."""
        pending: deque[Future[Item]] = deque()
        with ThreadPoolExecutor(MOST_READERS, thread_name_prefix="reader") as pool:
            try:
                for number, key in zip(count(1), keys, strict=False):
                    if self.plan.readers == 1 and not pending:
                        yield self._timed(key)  # in this thread: one reader needs no other thread
                    else:
                        pending.append(pool.submit(self._timed, key))
                        while len(pending) >= self.plan.readers:
                            yield pending.popleft().result()
                    if number % ITEMS_BETWEEN_PLANS == 0:
                        self._adapt()
                while pending:
                    yield pending.popleft().result()
            finally:
                for future in pending:
                    future.cancel()

    def follow(self, prefetcher: Prefetcher[Any]) -> None:
        """Adapt the prefetch depth and the readers from now on to the step time that `prefetcher` measures."""
        self._prefetcher = prefetcher

    def _timed(self, key: Key) -> Item:
        started = perf_counter()
        item = self._read(key)
        self._load_seconds.append(perf_counter() - started)
        return item

    def _adapt(self) -> None:
        follower = self._prefetcher
        if follower is None or not follower.items_computed:
            return
        # A copy, because readers append to the original at the same time.
        plan = plan_prefetch(tuple(self._load_seconds.copy()), follower.compute_seconds / follower.items_computed)
        self.plan = PrefetchPlan(depth=self.plan.depth if self._fixed_depth else plan.depth, readers=plan.readers)
        follower.depth = self.plan.depth


class DeviceCopy:
    """Copier of batches to a CUDA device on a stream of its own, so that copies overlap with steps."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def send(self, batch: Batch) -> tuple[Batch, torch.cuda.Event]:
        """Start the copy of a batch from page-locked memory; called in the background thread."""
        with torch.cuda.stream(self._stream):
            copied = batch.pin_memory().to(self._device, non_blocking=True)
            finished = torch.cuda.Event()
            finished.record(self._stream)
            return copied, finished

    def receive(self, sent: tuple[Batch, torch.cuda.Event]) -> Batch:
        """Make the current stream wait for the copy, without blocking the host; called where the batch is used.

        The memory belongs to the copy stream. It is marked as used by the current stream, so that it is not reused
        before the step ends.
        """
        batch, copied = sent
        current = torch.cuda.current_stream(self._device)
        current.wait_event(copied)
        for tensor in batch.tensors:
            tensor.record_stream(current)
        return batch
