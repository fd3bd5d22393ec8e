"""Requests that are scored together get the scores that each would get alone, and none suffers by another."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from shunter.errors import DataError
from shunter.serving.batcher import Batcher, Scored
from shunter.serving.errors import BusyError, RefusedError
from shunter.serving.metrics import Metrics
from shunter.serving.model_updater import load
from shunter.serving.request import BatchingRequest
from shunter.serving.served import Answer, ServedModel
from shunter.serving.table import Table
from shunter.tracking.registry.models import load_champion


@pytest.fixture
def model(home: Path) -> ServedModel:
    return load("shop")


def table_of(rows: pd.DataFrame) -> Table:
    values = rows.astype(object).where(rows.notna(), None)
    return Table(len(rows), {str(name): column.tolist() for name, column in values.items()})


def test_scores_do_not_depend_on_who_else_asks(model: ServedModel, rows: pd.DataFrame) -> None:
    """Requests of all sizes from 1 on, with columns of other types and one that is wrong among them."""
    champion = load_champion("shop")
    random = np.random.default_rng(0)
    parts = [rows.sample(int(size), random_state=int(size)) for size in random.integers(1, 60, 12)]
    parts += [rows.iloc[[place]] for place in range(8)] + [rows.head(0)]
    parts += [part.assign(item=part["item"].astype(str), age=part["age"] + 0.5) for part in parts[:3]]
    tables = [table_of(part) for part in parts]
    wrong = Table(1, {**tables[0].columns, "price": [{}]}), Table(1, {"price": [1]})
    *outcomes, lists, lacking = model.score([*tables, *wrong])
    for part, outcome in zip(parts, outcomes, strict=True):
        assert isinstance(outcome, Answer)
        assert np.asarray(outcome.scores).tobytes() == np.asarray(champion.predict(part)).tobytes()
    assert isinstance(lists, RefusedError)
    assert isinstance(lacking, DataError)


class Held:
    """The model, once it is let go: what comes until then waits."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self.asked, self.free = threading.Event(), threading.Event()

    def __call__(self) -> ServedModel:
        self.asked.set()
        assert self.free.wait(60)
        return self._model


@pytest.fixture
def batching(model: ServedModel) -> Iterator[Callable[..., tuple[Batcher, Held, Metrics]]]:
    begun: list[tuple[Batcher, Held]] = []

    def begin(**options: Any) -> tuple[Batcher, Held, Metrics]:
        held, metrics = Held(model), Metrics()
        begun.append((Batcher(held, BatchingRequest(**options), metrics), held))
        return *begun[-1], metrics

    yield begin
    for batcher, held in begun:
        held.free.set()
        batcher.close()


async def one_is_scored(batcher: Batcher, held: Held, table: Table) -> "asyncio.Future[Scored]":
    """A request that the thread has taken and not scored yet."""
    first = batcher.submit(table)
    await asyncio.to_thread(held.asked.wait)
    return first


def test_what_comes_meanwhile_is_scored_together_up_to_the_most(batching: Any, rows: pd.DataFrame) -> None:
    batcher, held, metrics = batching(max_batch_rows=10)
    table = table_of(rows.head(4))

    async def ask() -> None:
        answers = [await one_is_scored(batcher, held, table), *(batcher.submit(table) for _ in range(5))]
        answers[2].cancel()  # whoever asked has gone
        held.free.set()
        found = await asyncio.gather(*answers[:2], *answers[3:])
        assert len({np.asarray(one.answer.scores).tobytes() for one in found}) == 1

    asyncio.run(ask())
    # One by itself; the second, for the third has gone; the next two; the last.
    assert "shunter_batch_requests_count 4.0" in metrics.page().decode()
    assert "shunter_batch_rows_sum 20.0" in metrics.page().decode()


def test_a_request_waits_for_others_no_longer_than_it_may(batching: Any, rows: pd.DataFrame) -> None:
    batcher, held, metrics = batching(batch_milliseconds=10_000, max_batch_rows=8)
    held.free.set()
    table = table_of(rows.head(4))

    async def ask() -> None:
        await asyncio.gather(*(batcher.submit(table) for _ in range(4)))  # full before the time is over

    asyncio.run(ask())
    assert "shunter_batch_requests_count 2.0" in metrics.page().decode()


def test_beyond_what_may_wait_requests_are_refused_at_once(batching: Any, rows: pd.DataFrame) -> None:
    batcher, held, _ = batching(max_waiting_rows=6)

    async def ask() -> None:
        first = await one_is_scored(batcher, held, table_of(rows.head(50)))  # one is always taken
        second = batcher.submit(table_of(rows.head(5)))
        with pytest.raises(BusyError, match="5 rows wait to be scored"):
            batcher.submit(table_of(rows.head(2)))
        held.free.set()
        await asyncio.gather(first, second)
        await batcher.submit(table_of(rows.head(6)))

    asyncio.run(ask())


def test_a_model_that_fails_is_told_to_all_who_asked_and_the_next_are_answered(
    batching: Any, model: ServedModel, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher, held, _ = batching()
    held.free.set()
    table = table_of(rows.head(2))

    async def ask() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ServedModel, "score", lambda *_: 1 / 0)
            for outcome in await asyncio.gather(batcher.submit(table), batcher.submit(table), return_exceptions=True):
                assert isinstance(outcome, ZeroDivisionError)
        assert len((await batcher.submit(table)).answer.scores) == 2

    asyncio.run(asyncio.wait_for(ask(), 60))
