"""Where a study is kept, and what a request of somebody else may say of it."""

import logging
from pathlib import Path

import pytest
from pydantic import ValidationError

from shunter.errors import RequestError
from shunter.ingestion.sources import guard
from shunter.requests import TrainRequest
from shunter.search.study import address as addresses
from shunter.search.study.address import storage_address

ADDRESS = "postgresql://me:geheim-db@host/studies"


@pytest.fixture
def of_somebody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if the request had come through a deployment; the folder that may be read."""
    monkeypatch.setattr(guard, "_FOREIGN", [lambda: True])
    (tmp_path / "roots").mkdir()
    monkeypatch.setenv("SHUNTER_DATA_ROOTS", str(tmp_path / "roots"))
    return tmp_path / "roots"


def test_an_address_comes_from_a_variable_or_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STUDIES", ADDRESS)
    monkeypatch.setattr(addresses, "_READERS", [{"studies": ADDRESS}.get])
    assert storage_address(tmp_path, "env:STUDIES") == ADDRESS
    assert storage_address(tmp_path, "secret:studies") == ADDRESS
    for name in ("env:NOWHERE", "secret:nowhere"):
        with pytest.raises(RequestError, match="--search-storage"):
            storage_address(tmp_path, name)


def test_the_command_line_names_what_it_likes(tmp_path: Path) -> None:
    assert storage_address(tmp_path, str(tmp_path / "x.db")) == f"sqlite:///{tmp_path / 'x.db'}"
    assert storage_address(tmp_path, "oracle://host/db") == "oracle://host/db"
    assert storage_address(tmp_path, None) == f"sqlite:///{tmp_path / 'study.db'}"


@pytest.mark.parametrize(
    "shared",
    [
        "/etc/study.db",
        "../study.db",
        "/tmp/study.journal",
        "sqlite:////etc/study.db",
        "sqlite:///study.db?a=b",
        "oracle://host/db",
        "http://169.254.169.254/",
        "env:MLFLOW_TRACKING_URI",
        "secret:deployment-key",
    ],
)
def test_somebody_else_names_nothing_outside_the_roots(of_somebody_else: Path, tmp_path: Path, shared: str) -> None:
    with pytest.raises(RequestError) as caught:
        storage_address(tmp_path, shared)
    assert "\n" not in str(caught.value)


def test_somebody_else_may_name_what_is_meant_for_it(
    of_somebody_else: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHUNTER_SEARCH_STORAGE", ADDRESS)
    inside = of_somebody_else / "study.db"
    assert storage_address(tmp_path, str(inside)) == f"sqlite:///{inside}"
    assert storage_address(tmp_path, f"sqlite:///{inside}") == f"sqlite:///{inside}"
    assert storage_address(tmp_path, "postgresql+psycopg2://host/db") == "postgresql+psycopg2://host/db"
    assert storage_address(tmp_path, "env:SHUNTER_SEARCH_STORAGE") == ADDRESS


@pytest.mark.parametrize("address", ["postgresql://u:p@ss@h/d", "mysql://u:pa/ss@h", "postgresql://h/d?password=x"])
def test_a_request_with_a_password_is_refused_before_it_is_kept(address: str) -> None:
    import jsonschema

    with pytest.raises(ValidationError, match="env:SHUNTER_SEARCH_STORAGE"):
        TrainRequest(search_storage=address)  # pyright: ignore[reportCallIssue]
    form = TrainRequest.model_json_schema()
    for good in ("study.db", "env:STUDIES", "postgresql://me@host/db", None):
        jsonschema.validate({"search_storage": good}, form)
    with pytest.raises(jsonschema.ValidationError):  # what Prefect's server does before it keeps a run's parameters
        jsonschema.validate({"search_storage": address}, form)


def test_an_address_from_a_variable_is_in_no_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import shunter.tasks  # noqa: F401 - which hides secrets in logs

    monkeypatch.setenv("STUDIES", ADDRESS)
    logging.getLogger("any").warning("opening %s", storage_address(tmp_path, "env:STUDIES"))
    assert "geheim" not in caplog.text
