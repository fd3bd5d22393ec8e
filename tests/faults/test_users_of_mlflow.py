"""MLflow's database of users: made and migrated as a whole, so that a kill leaves no schema that MLflow cannot use."""

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from shunter.errors import RequestError, ShunterError
from shunter.flows.command.exposure import exposure
from shunter.operation.servers import AUTH_SCRIPTS, _users_of, mlflow_auth
from shunter.python_processes import run_python
from shunter.settings import Settings
from shunter.tracking.store_schema import scripts_of

pytestmark = pytest.mark.slow  # each start of MLflow takes seconds
FIRST = "8606fa83a998"  # the oldest revision
USER = "INSERT INTO users (username, password_hash, is_admin) VALUES ('anna', 'x', 0)"


@pytest.fixture
def users(shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Database of users of a home whose MLflow asks for passwords; there is none yet."""
    monkeypatch.setenv("SHUNTER_MLFLOW_BASIC_AUTH", "true")
    monkeypatch.setenv("MLFLOW_FLASK_SERVER_SECRET_KEY", "long and random")
    monkeypatch.setenv("MLFLOW_AUTH_ADMIN_PASSWORD", "long and random too")
    folder = Settings().tracking_root.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "basic_auth.db"


def upgrade(database: Path, revision: str = "head") -> int:
    options = ("--url", f"sqlite:///{database}", "--revision", revision)
    return run_python("-m", "mlflow.server.auth", "db", "upgrade", *options).returncode


def write(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def newest() -> str | None:
    return scripts_of(AUTH_SCRIPTS).get_current_head()


def test_a_database_that_a_kill_left_half_made_is_made_anew(users: Path) -> None:
    assert upgrade(users, FIRST) == 0
    write(users, "DELETE FROM alembic_version_auth")
    assert upgrade(users) != 0
    mlflow_auth(exposure())
    assert _users_of(users) == (False, newest())
    assert upgrade(users) == 0


def test_a_new_database_is_readable_to_its_owner_alone(users: Path) -> None:
    mlflow_auth(exposure())
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    assert _users_of(users) == (False, newest())


def test_without_a_user_the_first_password_is_needed(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow_auth(exposure())
    monkeypatch.delenv("MLFLOW_AUTH_ADMIN_PASSWORD")
    with pytest.raises(RequestError):
        mlflow_auth(exposure())
    write(users, USER)
    mlflow_auth(exposure())


def test_users_outlive_a_migration_and_a_copy_is_left(users: Path) -> None:
    assert upgrade(users, FIRST) == 0
    write(users, USER)
    mlflow_auth(exposure())
    assert _users_of(users) == (True, newest())
    [kept] = users.parent.glob("basic_auth.db.before-*")
    assert _users_of(kept) == (True, FIRST)


def test_a_half_made_database_with_users_is_left_as_it_is_and_named(users: Path) -> None:
    assert upgrade(users, FIRST) == 0
    write(users, USER, "DELETE FROM alembic_version_auth")
    with pytest.raises(ShunterError, match=users.name):
        mlflow_auth(exposure())
    assert _users_of(users) == (True, None)
