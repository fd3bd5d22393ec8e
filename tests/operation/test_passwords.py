"""The password of Prefect's server is made up once, and nobody else can read it."""

import stat
from pathlib import Path

import pytest

from shunter.errors import ShunterError
from shunter.flows.command.passwords import password_path, prefect_login
from shunter.operation.background_services import login_advice
from shunter.operation.servers import prefect_service, worker_service


@pytest.fixture(autouse=True)
def none_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name, raising=False)


def test_it_is_random_and_kept_for_its_owner_alone(shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = prefect_login()
    assert prefect_login() == password_path().read_text() == login
    assert stat.S_IMODE(password_path().stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (shunter_home, password_path().parent)} == {0o700}
    assert [path.name for path in password_path().parent.iterdir()] == [password_path().name]
    assert len(login.partition(":")[2]) >= 32
    monkeypatch.setenv("SHUNTER_HOME", str(shunter_home / "another"))
    assert prefect_login() != login


def test_server_and_worker_know_it_and_no_command_shows_it() -> None:
    server, worker = prefect_service(4200), worker_service("http://127.0.0.1:4200", 4300)
    assert server.environment["PREFECT_SERVER_API_AUTH_STRING"] == prefect_login()
    assert worker.environment["PREFECT_API_AUTH_STRING"] == prefect_login()
    assert prefect_login().partition(":")[2] not in " ".join((*server.command, *worker.command, login_advice()))


@pytest.mark.parametrize("name", ["PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"])
def test_the_operators_own_is_used_and_not_written_down(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "admin:my own")
    assert prefect_login() == "admin:my own"
    assert not password_path().exists()
    assert str(password_path()) not in login_advice()


def test_a_home_that_cannot_be_written_is_named(shunter_home: Path) -> None:
    shunter_home.write_text("a file, no folder")
    with pytest.raises(ShunterError, match="SHUNTER_HOME"):
        prefect_login()
