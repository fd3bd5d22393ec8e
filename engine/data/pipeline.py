"""Input pipeline from files to device: adaptive prefetch depth and readers, and asynchronous copies to a GPU."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from shunter.engine.data.batch import Batch
from shunter.engine.data.prefetch import Prefetcher

Key = TypeVar("Key")
Item = TypeVar("Item")
DEEPEST = 16
MOST_READERS = 8
LOADS_REMEMBERED = 256
ITEMS_BETWEEN_PLANS = 16


@dataclass(frozen=True, kw_only=True)
class PrefetchPlan:
    """Prefetch settings: number of prefetched batches and of reader threads.

    Attributes:
        depth: Number of prefetched batches.
        readers: Threads that read at the same time.
    """

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
    """Copier of batches to a CUDA device on a stream of its own, so that copies overlap with steps.

    Args:
        device: Destination.
    """

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
