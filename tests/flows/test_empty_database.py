"""A new home begins with the tables of Prefect's server, whole and private, or with an empty file."""

import shutil
import sqlite3
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from shunter.database import keep_template, template_path
from shunter.flows.command import empty_database


@pytest.fixture
def kept(tmp_path: Path, empty_prefect: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that has one."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    found = template_path(empty_database.PREFECT)
    found.parent.mkdir(parents=True)
    shutil.copy(empty_prefect, found)
    return found


def tables_of(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as opened:
        return {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def content(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as opened:
        return list(opened.iterdump())


def test_a_home_without_a_database_gets_the_tables_for_its_owner_alone(tmp_path: Path, kept: Path) -> None:
    database = tmp_path / "home" / "prefect.db"
    empty_database.begin(database)
    assert {"flow_run", "task_run", "alembic_version"} <= tables_of(database)
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert {file.name for file in database.parent.iterdir()} == {"prefect.db", "prefect.db.lock"}


def test_a_database_that_is_there_stays(tmp_path: Path, kept: Path) -> None:
    database = tmp_path / "prefect.db"
    database.write_bytes(b"mine")
    empty_database.begin(database)
    assert database.read_bytes() == b"mine"


def test_commands_that_begin_at_once_find_whole_tables(tmp_path: Path, kept: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        for number in range(20):
            database = tmp_path / str(number) / "prefect.db"
            list(threads.map(empty_database.begin, [database] * 8))
            assert content(database) == content(kept)


def test_an_environment_without_one_begins_with_an_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    empty_database.begin(tmp_path / "prefect.db")
    assert not (tmp_path / "prefect.db").read_bytes()


@pytest.mark.slow
def test_prefect_makes_them(tmp_path: Path, empty_prefect: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    keep_template(empty_database.PREFECT, empty_database.make_tables)
    made = template_path(empty_database.PREFECT)
    assert tables_of(made) == tables_of(empty_prefect)
    assert [*made.parent.iterdir()] == [made]
