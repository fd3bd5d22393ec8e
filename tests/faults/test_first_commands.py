"""First commands of a home that are killed or begin at once, and homes that such commands have left half made."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.faults.first_commands import KILLED, KILLED_IN_WRITE, FirstCommand, run
from shunter.database import template_path
from shunter.errors import TrackingError
from shunter.tracking.store import open_store
from shunter.tracking.store_schema import newest_revision, revision_of


@pytest.fixture(params=["template", "no template"])
def command(
    request: pytest.FixtureRequest, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> FirstCommand:
    """First command in an environment with or without a template of MLflow's tables."""
    prefix = tmp_path / "environment"
    if request.param == "template":
        with monkeypatch.context() as patch:
            patch.setattr("sys.prefix", str(prefix))
            template = template_path("mlflow")
        template.parent.mkdir(parents=True)
        shutil.copy(empty_database, template)
    return FirstCommand(home=tmp_path / "home", prefix=prefix)


def tables(home: Path) -> Path:
    return home / "mlflow" / "mlflow.db"


@pytest.mark.parametrize("command", ["template", pytest.param("no template", marks=pytest.mark.long)], indirect=True)
def test_after_a_kill_at_any_statement_the_next_command_works(command: FirstCommand, tmp_path: Path) -> None:
    has_template = command.prefix.exists()
    kills = 0
    for number in range(1, 5_000, 6 if has_template else 200):
        killed = replace(command, home=tmp_path / str(number), kill_at_statement=number)
        [code] = run(killed)
        if code == 0:
            break
        assert code == KILLED
        assert run(replace(killed, kill_at_statement=None)) == [0], number
        kills += 1
    assert kills >= 4


@pytest.mark.parametrize("byte", [4_096, 300_000, 900_000])
def test_after_a_kill_within_a_write_the_next_command_works(command: FirstCommand, byte: int) -> None:
    assert run(replace(command, kill_at_byte=byte)) == [KILLED_IN_WRITE]
    assert run(command) == [0]


@pytest.mark.parametrize("is_named", [False, True])
def test_three_first_commands_at_once_work(command: FirstCommand, is_named: bool, tmp_path: Path) -> None:
    for number in range(2):
        variables = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'named' / f'{number}.db'}"} if is_named else {}
        one = replace(command, home=tmp_path / str(number), variables=variables)
        assert run(one, one, one) == [0, 0, 0]


# What a kill within MLflow's own migrations leaves: the last whole revision, and a statement of the next one.
HALF_MADE = {
    "duplicate column name: step": ("451aebb31d03", "DELETE FROM alembic_version"),
    "duplicate column name: run_link": ("27a6a02d2cf1", "ALTER TABLE model_versions ADD COLUMN run_link VARCHAR(500)"),
    "table _alembic_tmp_experiments already exists": (
        "c8d9e0f1a2b3",
        "CREATE TABLE _alembic_tmp_experiments (experiment_id INTEGER)",
    ),
}


@pytest.fixture
def leave_half_made(database_of_revision: Callable[[str], Path]) -> Callable[[Path, str], None]:
    def leave(database: Path, kind: str) -> None:
        revision, statement = HALF_MADE[kind]
        database.parent.mkdir(parents=True)
        shutil.copy(database_of_revision(revision), database)
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(statement)

    return leave


@pytest.mark.parametrize("kind", HALF_MADE)
def test_a_home_that_was_left_half_made_is_repaired(
    command: FirstCommand, kind: str, leave_half_made: Callable[[Path, str], None]
) -> None:
    database = tables(command.home)
    leave_half_made(database, kind)
    assert run(replace(command, as_mlflow=True)) == [1]
    assert run(command) == [0]
    assert revision_of(database) == newest_revision()


@pytest.mark.parametrize("kind", HALF_MADE)
def test_a_half_made_store_with_runs_is_left_as_it_is_and_named(
    shunter_home: Path, kind: str, leave_half_made: Callable[[Path, str], None]
) -> None:
    database = tables(shunter_home)
    leave_half_made(database, kind)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO runs (run_uuid, status) VALUES ('mine', 'FINISHED')")
        before = list(connection.iterdump())
    with pytest.raises(TrackingError, match=f"move {database.name}"):
        open_store()
    with closing(sqlite3.connect(database)) as connection:
        assert list(connection.iterdump()) == before
    assert {file.name for file in database.parent.iterdir()} == {"mlflow.db", "mlflow.db.lock"}
