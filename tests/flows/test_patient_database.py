"""Transactions of Prefect's server on SQLite: a second writer waits, and none is refused."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.exc import OperationalError

from shunter.flows.command.patient_database import begin_as_writer


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect's own way to begin is restored after the test."""
    monkeypatch.setattr(
        AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction, raising=True
    )


def write_between(path: Path) -> None:
    """Write by another connection, which waits a tenth of a second for its turn."""
    with sqlite3.connect(path, timeout=0.1) as other:
        other.execute("INSERT INTO counts VALUES (2)")


def read_then_write(path: Path, between: Callable[[], None]) -> list[int]:
    """Read, call `between`, and write in one transaction of Prefect's; return what is in the table afterwards."""

    async def run() -> None:
        database = AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{path}")
        engine = await database.engine()
        session = await database.session(engine)
        async with session, database.begin_transaction(session):
            (await session.execute(sa.text("SELECT count(*) FROM counts"))).scalar_one()
            between()
            await session.execute(sa.text("INSERT INTO counts VALUES (1)"))
        await engine.dispose()

    with sqlite3.connect(path) as first:
        first.execute("PRAGMA journal_mode = WAL")
        first.execute("CREATE TABLE counts (number INTEGER)")
    asyncio.run(run())
    with sqlite3.connect(path) as after:
        return [number for (number,) in after.execute("SELECT number FROM counts ORDER BY number")]


@pytest.mark.usefixtures("undone")
def test_a_second_writer_waits_for_the_first_and_neither_is_refused(tmp_path: Path) -> None:
    begin_as_writer()
    with_turns: list[str] = []

    def between() -> None:
        try:
            write_between(tmp_path / "prefect.db")
        except sqlite3.OperationalError as error:
            with_turns.append(error.sqlite_errorname)

    assert read_then_write(tmp_path / "prefect.db", between) == [1]
    assert with_turns == ["SQLITE_BUSY"], "which Prefect's own connections wait out for a minute"


def test_without_it_the_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperationalError):
        read_then_write(tmp_path / "prefect.db", lambda: write_between(tmp_path / "prefect.db"))
