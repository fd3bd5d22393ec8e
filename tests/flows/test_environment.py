"""A command finds the server that `shunter up` has started."""

import os

import pytest

from shunter.flows.command.daemons import Daemon
from shunter.flows.command.environment import use_running_server
from shunter.flows.command.passwords import prefect_login
from shunter.hardware.devices.process_mark import process_mark
from shunter.settings import Settings


def write_daemon(mark: str) -> None:
    directory = Settings().services_directory
    directory.mkdir(parents=True, exist_ok=True)
    daemon = Daemon(name="Prefect", pid=os.getpid(), mark=mark, url="http://127.0.0.1:4321", log=directory / "log")
    (directory / "prefect.json").write_text(daemon.model_dump_json())


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
        monkeypatch.setenv(name, "")  # so that what the test sets is taken back
        monkeypatch.delenv(name)


def test_runs_of_the_command_are_told_to_the_server_that_is_up() -> None:
    write_daemon(process_mark(os.getpid()) or "")
    use_running_server()
    assert os.environ["PREFECT_API_URL"] == "http://127.0.0.1:4321/api"
    assert os.environ["PREFECT_API_AUTH_STRING"] == prefect_login()


def test_an_address_that_the_user_has_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    write_daemon(process_mark(os.getpid()) or "")
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    use_running_server()
    assert os.environ["PREFECT_API_URL"] == "http://elsewhere/api"
    assert "PREFECT_API_AUTH_STRING" not in os.environ, "it is not told the password of ours"


def test_a_server_that_is_gone_is_not_waited_for() -> None:
    write_daemon("another boot/1")
    use_running_server()
    assert "PREFECT_API_URL" not in os.environ
