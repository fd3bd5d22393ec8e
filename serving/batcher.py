"""Batching: concurrent requests are scored together, in a thread outside of the event loop."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shunter.serving.errors import BusyError
from shunter.serving.metrics import Metrics
from shunter.serving.request import BatchingRequest
from shunter.serving.served import Answer, Outcome, ServedModel
from shunter.serving.table import Table


@dataclass(frozen=True)
class Scored:
    """Scores of one request, and the model that computed them."""

    answer: Answer
    model: ServedModel


@dataclass(frozen=True)
class _Waiting:
    table: Table
    answer: "asyncio.Future[Scored]"
    loop: asyncio.AbstractEventLoop
    since: float


class Batcher:
    """Batcher that scores all waiting requests in one batch, in the order of arrival, up to the largest batch size.

    The event loop calls `submit`. The scoring thread takes the waiting requests, at most `batch_milliseconds` after the
    first of them arrived, and sets the result of each request. One model scores the whole batch, so a new model can
    replace the served model between two batches without a failed request.
    """

    def __init__(self, model: Callable[[], ServedModel], config: BatchingRequest, metrics: Metrics) -> None:
        self._model, self._config, self._metrics = model, config, metrics
        self._waiting: deque[_Waiting] = deque()
        self._waiting_rows = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="scores", daemon=True)
        self._thread.start()

    def submit(self, table: Table) -> "asyncio.Future[Scored]":
        """Queue a request and return a future of its scores; call this from the event loop.

        Raises:
            BusyError: Too many rows wait to be scored.
        """
        loop = asyncio.get_running_loop()
        with self._changed:
            limit = self._config.max_waiting_rows
            if self._is_closed or (self._waiting and self._waiting_rows + table.rows > limit):
                raise BusyError(
                    f"The queue is full: {self._waiting_rows:,} rows wait to be scored. Try again in a second."
                )
            one = _Waiting(table, loop.create_future(), loop, time.monotonic())
            self._waiting.append(one)
            self._count(table.rows)
            self._changed.notify()
        return one.answer

    def close(self) -> None:
        """Score the waiting requests, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while taken := self._take():
            asked = [one for one in taken if not one.answer.cancelled()]  # skip clients that have disconnected
            if not asked:
                continue
            model, begin = self._model(), time.perf_counter()
            try:
                outcomes = model.score([one.table for one in asked])
            except Exception as error:  # an error is the outcome of each request; the only scoring thread must survive
                outcomes = [error] * len(asked)
            self._metrics.score_seconds.observe(time.perf_counter() - begin)
            self._metrics.batch_requests.observe(len(asked))
            self._metrics.batch_rows.observe(sum(one.table.rows for one in asked))
            asked[0].loop.call_soon_threadsafe(_hand_out, asked, outcomes, model)

    def _take(self) -> list[_Waiting]:
        """Return the requests of the next batch; empty if the batcher is closed and no request waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return []
            latest = self._waiting[0].since + self._config.batch_milliseconds / 1000
            self._changed.wait_for(
                lambda: self._is_closed or self._waiting_rows >= self._config.max_batch_rows,
                timeout=max(latest - time.monotonic(), 0),
            )
            taken: list[_Waiting] = []
            rows = 0
            while self._waiting and (not taken or rows + self._waiting[0].table.rows <= self._config.max_batch_rows):
                one = self._waiting.popleft()
                rows += one.table.rows
                taken.append(one)
            self._count(-rows)
            return taken

    def _count(self, rows: int) -> None:
        self._waiting_rows += rows
        self._metrics.waiting_rows.set(self._waiting_rows)


def _hand_out(asked: Sequence[_Waiting], outcomes: Sequence[Outcome], model: ServedModel) -> None:
    """Set the result of each request, in the event loop."""
    for one, outcome in zip(asked, outcomes, strict=True):
        if one.answer.done():
            continue
        if isinstance(outcome, Exception):
            one.answer.set_exception(outcome)
        else:
            one.answer.set_result(Scored(outcome, model))
