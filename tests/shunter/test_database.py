"""Write-ahead logs and copies of databases, with real SQLite files and processes."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shunter.database import copy_database, enable_wal
from shunter.settings import Settings
from shunter.tracking.store import open_store


def mode(database: Path) -> str:
    with closing(sqlite3.connect(database)) as tables:
        return tables.execute("PRAGMA journal_mode").fetchone()[0]


def test_our_own_store_has_a_write_ahead_log(tracking_root: Path) -> None:
    database = Settings().tracking_root / "mlflow.db"
    assert mode(database) == "delete"
    open_store()
    assert mode(database) == "wal"


def test_an_empty_file_is_written_so_from_the_beginning(tmp_path: Path) -> None:
    database = tmp_path / "new.db"
    database.touch()
    enable_wal(database)
    assert mode(database) == "wal"


def test_what_is_no_database_stays_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"no database" * 100)
    enable_wal(other)
    enable_wal(tmp_path / "absent.db")
    assert other.read_bytes() == b"no database" * 100
    assert not (tmp_path / "absent.db").exists()


def test_one_that_others_write_is_left_to_the_next_time(tmp_path: Path) -> None:
    database = tmp_path / "held.db"
    with closing(sqlite3.connect(database)) as others:
        others.execute("CREATE TABLE held (number)")
        others.execute("BEGIN EXCLUSIVE")
        enable_wal(database)
    assert mode(database) == "delete"
    enable_wal(database)
    assert mode(database) == "wal"


def test_a_write_of_a_process_that_ended_without_closing_is_there(tmp_path: Path) -> None:
    database, moved = tmp_path / "left.db", tmp_path / "moved"
    database.touch()
    enable_wal(database)
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


def in_another_process(database: Path, statement: str) -> list[list[int]]:
    """Run one statement on a connection of another process, which it closes."""
    script = (
        "import json, sqlite3, sys\n"
        "with sqlite3.connect(sys.argv[1]) as tables: rows = tables.execute(sys.argv[2]).fetchall()\n"
        "tables.close(); print(json.dumps(rows))"
    )
    done = subprocess.run([sys.executable, "-c", script, database, statement], capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture
def in_use(tmp_path: Path) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """A database with one committed row in its log, and a connection with an unfinished transaction."""
    database = tmp_path / "used.db"
    database.touch()
    enable_wal(database)
    with closing(sqlite3.connect(database)) as connection:
        with connection:
            connection.execute("CREATE TABLE kept (number)")
            connection.execute("INSERT INTO kept VALUES (1)")
        connection.execute("INSERT INTO kept VALUES (2)")
        yield database, connection


@pytest.mark.parametrize("touch", [enable_wal, lambda database: copy_database(database, database.with_name("copy.db"))])
def test_the_log_survives_other_processes(
    in_use: tuple[Path, sqlite3.Connection], touch: Callable[[Path], None]
) -> None:
    database, connection = in_use
    log = database.with_name("used.db-wal").stat().st_ino
    touch(database)
    assert in_another_process(database, "SELECT number FROM kept") == [[1]]
    assert database.with_name("used.db-wal").stat().st_ino == log
    connection.commit()
    assert in_another_process(database, "SELECT number FROM kept") == [[1], [2]]


def test_a_copy_holds_what_was_committed(in_use: tuple[Path, sqlite3.Connection]) -> None:
    database, _ = in_use
    copy_database(database, database.with_name("copy.db"))
    assert in_another_process(database.with_name("copy.db"), "SELECT number FROM kept") == [[1]]


def test_an_immutable_database_is_copied_out_of_a_read_only_folder(tmp_path: Path) -> None:
    kept, copy = tmp_path / "kept" / "tables.db", tmp_path / "copy.db"
    kept.parent.mkdir()
    kept.touch()
    enable_wal(kept)
    in_another_process(kept, "CREATE TABLE kept (number)")
    kept.parent.chmod(0o500)
    copy_database(kept, copy, is_immutable=True)
    assert [file.name for file in kept.parent.iterdir()] == ["tables.db"]
    assert in_another_process(copy, "SELECT count(*) FROM kept") == [[0]]
