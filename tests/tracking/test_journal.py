"""The journal of our own store, with real files of SQLite."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from shunter.settings import Settings
from tracking.journal import log_ahead
from tracking.store import open_store


def mode(database: Path) -> str:
    with closing(sqlite3.connect(database)) as tables:
        return tables.execute("PRAGMA journal_mode").fetchone()[0]


def test_our_own_store_is_written_by_a_log_ahead(tracking_root: Path) -> None:
    database = Settings().tracking_root / "mlflow.db"
    assert mode(database) == "delete"
    open_store()
    assert mode(database) == "wal"


def test_an_empty_file_is_written_so_from_the_beginning(tmp_path: Path) -> None:
    database = tmp_path / "new.db"
    database.touch()
    log_ahead(database)
    assert mode(database) == "wal"


def test_what_is_no_database_stays_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"no database" * 100)
    log_ahead(other)
    log_ahead(tmp_path / "absent.db")
    assert other.read_bytes() == b"no database" * 100
    assert not (tmp_path / "absent.db").exists()


def test_one_that_others_write_is_left_to_the_next_time(tmp_path: Path) -> None:
    database = tmp_path / "held.db"
    with closing(sqlite3.connect(database)) as others:
        others.execute("CREATE TABLE held (number)")
        others.execute("BEGIN EXCLUSIVE")
        log_ahead(database)
    assert mode(database) == "delete"
    log_ahead(database)
    assert mode(database) == "wal"


def test_a_write_of_a_process_that_ended_without_closing_is_there(tmp_path: Path) -> None:
    database, moved = tmp_path / "left.db", tmp_path / "moved"
    database.touch()
    log_ahead(database)
    left = sqlite3.connect(database)
    with left:
        left.execute("CREATE TABLE kept (number)")
        left.execute("INSERT INTO kept VALUES (3)")
    moved.mkdir()
    for file in tmp_path.glob("left.db*"):  # as it lies on the disk while nobody has closed it
        shutil.copy(file, moved)
    left.close()
    with closing(sqlite3.connect(moved / "left.db")) as tables:
        assert tables.execute("SELECT number FROM kept").fetchone() == (3,)
