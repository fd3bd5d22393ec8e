"""MLflow's database of users: made and migrated as a whole, so that a kill leaves no schema that MLflow cannot use."""

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from shunter.errors import RequestError, ShunterError
from shunter.flows.command.services import exposure
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


def write(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def newest() -> str | None:
    return scripts_of(AUTH_SCRIPTS).get_current_head()


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of users as the first version of MLflow's authentication made it."""
    path = tmp_path_factory.mktemp("users") / "basic_auth.db"
    made = run_python("-m", "mlflow.server.auth", "db", "upgrade", "--url", f"sqlite:///{path}", "--revision", FIRST)
    assert made.returncode == 0
    return path


def test_a_database_that_a_kill_left_half_made_is_made_anew_and_needs_a_first_password(
    users: Path, oldest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("MLFLOW_AUTH_ADMIN_PASSWORD")
        with pytest.raises(RequestError):
            mlflow_auth(exposure())
    users.write_bytes(oldest.read_bytes())
    write(users, "DELETE FROM alembic_version_auth")
    mlflow_auth(exposure())
    assert _users_of(users) == (False, newest())
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    monkeypatch.delenv("MLFLOW_AUTH_ADMIN_PASSWORD")
    write(users, USER)
    mlflow_auth(exposure())


def test_users_outlive_a_migration_and_a_copy_is_left(users: Path, oldest: Path) -> None:
    shutil.copy(oldest, users)
    write(users, USER)
    mlflow_auth(exposure())
    assert _users_of(users) == (True, newest())
    [kept] = users.parent.glob("basic_auth.db.before-*")
    assert _users_of(kept) == (True, FIRST)


def test_a_half_made_database_with_users_is_left_as_it_is_and_named(users: Path, oldest: Path) -> None:
    shutil.copy(oldest, users)
    write(users, USER, "DELETE FROM alembic_version_auth")
    with pytest.raises(ShunterError, match=users.name):
        mlflow_auth(exposure())
    assert _users_of(users) == (True, None)
