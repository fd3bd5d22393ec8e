"""Stores of an older MLflow: migrated in one step, with all runs and a copy of what was there before."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.faults.first_commands import KILLED, KILLED_IN_WRITE, FirstCommand, run
from shunter.errors import TrackingError
from shunter.tracking.store import open_store
from shunter.tracking.store_schema import newest_revision, revision_of

MLFLOW_2 = "acf3f17fdcc7"
MLFLOW_3 = "1b5f0d9ad7c1"


@pytest.fixture(params=[MLFLOW_2, MLFLOW_3])
def older(request: pytest.FixtureRequest, shunter_home: Path, database_of_revision: Callable[[str], Path]) -> Path:
    """Database of a home with a run and a metric, in an older schema."""
    return write_older_store(shunter_home / "mlflow" / "mlflow.db", database_of_revision(request.param))


def write_older_store(database: Path, empty: Path) -> Path:
    database.parent.mkdir(parents=True)
    shutil.copy(empty, database)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executescript(
            """
            INSERT INTO experiments (experiment_id, name, artifact_location, lifecycle_stage)
                VALUES (1, 'shunter/train', '/artifacts', 'active');
            INSERT INTO runs (run_uuid, name, user_id, status, lifecycle_stage, experiment_id, artifact_uri, start_time)
                VALUES ('mine', 'train', 'me', 'FINISHED', 'active', 1, '/artifacts/mine', 7);
            INSERT INTO metrics (run_uuid, key, value, timestamp, step, is_nan) VALUES ('mine', 'auc', 0.75, 7, 3, 0);
            INSERT INTO latest_metrics (run_uuid, key, value, timestamp, step, is_nan)
                VALUES ('mine', 'auc', 0.75, 7, 3, 0);
            """
        )
    return database


def copies(database: Path) -> list[Path]:
    return [*database.parent.glob("mlflow.db.before-*")]


def auc(database: Path) -> list[float]:
    with closing(sqlite3.connect(database)) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM metrics WHERE run_uuid = 'mine'")]


def test_a_migration_keeps_the_runs_and_leaves_a_copy(older: Path) -> None:
    former = revision_of(older)
    run_of_before = open_store().mlflow.get_run("mine")
    assert (run_of_before.info.status, run_of_before.data.metrics) == ("FINISHED", {"auc": 0.75})
    assert revision_of(older) == newest_revision()
    [copy] = copies(older)
    assert (revision_of(copy), auc(copy), copy.stat().st_mode & 0o777) == (former, [0.75], 0o600)


def test_a_migration_that_is_killed_at_any_statement_has_not_begun(
    tmp_path: Path, database_of_revision: Callable[[str], Path]
) -> None:
    kills = 0
    for number in range(3, 5_000, 120):
        command = FirstCommand(home=tmp_path / str(number), prefix=tmp_path / "environment", kill_at_statement=number)
        database = write_older_store(command.home / "mlflow" / "mlflow.db", database_of_revision(MLFLOW_3))
        [code] = run(command)
        if code == 0:
            break
        assert code == KILLED
        assert (revision_of(database), auc(database)) in ((MLFLOW_3, [0.75]), (newest_revision(), [0.75]))
        assert run(replace(command, kill_at_statement=None)) == [0], number
        assert auc(database) == [0.75]
        assert [auc(copy) for copy in copies(database)] == [[0.75]]
        kills += 1
    assert kills >= 3


@pytest.mark.parametrize("byte", [4_096, 200_000, 600_000])
def test_a_migration_that_is_killed_within_a_write_is_made_by_the_next_command(older: Path, byte: int) -> None:
    command = FirstCommand(home=older.parent.parent, prefix=older.parent / "environment", kill_at_byte=byte)
    assert run(command) == [KILLED_IN_WRITE]
    assert run(replace(command, kill_at_byte=None)) == [0]
    assert (revision_of(older), auc(older)) == (newest_revision(), [0.75])
    assert [auc(copy) for copy in copies(older)] == [[0.75]]


def test_three_commands_at_once_migrate_once(older: Path) -> None:
    command = FirstCommand(home=older.parent.parent, prefix=older.parent / "environment")
    assert run(command, command, command) == [0, 0, 0]
    assert (revision_of(older), auc(older), len(copies(older))) == (newest_revision(), [0.75], 1)


def test_a_process_that_has_the_store_open_writes_into_the_migrated_one(older: Path) -> None:
    with closing(sqlite3.connect(older)) as connection:
        connection.execute("SELECT * FROM runs").fetchall()
        assert run(FirstCommand(home=older.parent.parent, prefix=older.parent / "environment")) == [0]
        with connection:
            connection.execute("UPDATE metrics SET value = 0.5")
    assert auc(older) == [0.5]
    assert revision_of(older) == newest_revision()


def test_a_store_of_an_unknown_schema_is_refused_as_it_is(older: Path) -> None:
    with closing(sqlite3.connect(older)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    with pytest.raises(TrackingError, match="ffffffffffff"):
        open_store()
    assert auc(older) == [0.75]
    assert copies(older) == []


def test_a_database_that_the_user_has_named_is_migrated_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_of_revision: Callable[[str], Path]
) -> None:
    database = write_older_store(tmp_path / "named" / "mlflow.db", database_of_revision(MLFLOW_3))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    open_store()
    assert (revision_of(database), auc(database)) == (newest_revision(), [0.75])
    assert [auc(copy) for copy in copies(database)] == [[0.75]]
