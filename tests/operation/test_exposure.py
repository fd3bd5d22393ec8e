"""Who can reach the servers: this machine alone, or others with a password."""

import sys

import pytest

from shunter.errors import RequestError
from shunter.flows.command.services import exposure
from shunter.operation.servers import mlflow_service, prefect_service
from shunter.settings import Settings

PASSWORD = "admin:correct horse"


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_HOST", "0.0.0.0")
    monkeypatch.setenv("SHUNTER_HOST_NAMES", "train.example.org")


def option(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


def test_everything_listens_on_loopback_unless_told() -> None:
    for service in (prefect_service(4200), mlflow_service(5000)):
        assert option(service.command, "--host") == "127.0.0.1"
        assert service.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_loopback_by_any_name_needs_no_password(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("SHUNTER_HOST", host)
    assert not exposure().is_public
    assert option(prefect_service(4200).command, "--host") == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "train.example.org"])
def test_public_host_without_passwords_is_refused_with_what_to_set(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.delenv("PREFECT_SERVER_API_AUTH_STRING", raising=False)
    monkeypatch.setenv("SHUNTER_HOST", host)
    with pytest.raises(RequestError, match="SHUNTER_HOST_NAMES"):
        prefect_service(4200)
    monkeypatch.setenv("SHUNTER_HOST_NAMES", "train.example.org")
    with pytest.raises(RequestError, match="PREFECT_SERVER_API_AUTH_STRING=user:password"):
        prefect_service(4200)
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", PASSWORD)
    with pytest.raises(RequestError, match="PREFECT_API_AUTH_STRING"):
        prefect_service(4200)
    with pytest.raises(RequestError, match="SHUNTER_MLFLOW_BASIC_AUTH=true"):
        mlflow_service(5000)


def test_public_prefect_with_its_password_is_started_and_the_password_is_in_no_command(
    monkeypatch: pytest.MonkeyPatch, public: None
) -> None:
    for name in ("PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"):
        monkeypatch.setenv(name, PASSWORD)
    service = prefect_service(4200)
    assert option(service.command, "--host") == "0.0.0.0"
    assert service.environment["PREFECT_UI_API_URL"] == "http://train.example.org:4200/api"
    assert not [part for part in service.command if PASSWORD in part]


def test_mlflow_knows_its_names_and_asks_for_a_password(monkeypatch: pytest.MonkeyPatch, public: None) -> None:
    monkeypatch.setenv("SHUNTER_MLFLOW_BASIC_AUTH", "true")
    for name in ("MLFLOW_FLASK_SERVER_SECRET_KEY", "MLFLOW_AUTH_ADMIN_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    Settings().tracking_root.mkdir(parents=True)
    monkeypatch.setitem(sys.modules, "flask_wtf", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RequestError, match="needs the package Flask-WTF"):
        mlflow_service(5000)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(RequestError, match="MLFLOW_FLASK_SERVER_SECRET_KEY"):
        mlflow_service(5000)
    monkeypatch.setenv("MLFLOW_FLASK_SERVER_SECRET_KEY", "long and random")
    monkeypatch.setenv("MLFLOW_AUTH_ADMIN_PASSWORD", "long and random too")
    service = mlflow_service(5000)
    assert option(service.command, "--app-name") == "basic-auth"
    assert "train.example.org:5000" in option(service.command, "--allowed-hosts").split(",")
    settings = (Settings().tracking_root / "basic_auth.ini").read_text()
    assert "NO_PERMISSIONS" in settings
    assert "long and random" not in settings + " ".join(service.command)


def test_password_of_the_store_is_in_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:geheim@host/db")
    service = mlflow_service(5000)
    assert not [part for part in service.command if "geheim" in part]
    assert service.environment["MLFLOW_BACKEND_STORE_URI"].endswith("me:geheim@host/db")
