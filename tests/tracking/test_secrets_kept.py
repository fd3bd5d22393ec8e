"""What is written about a run holds no secret, whichever way one came in."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from shunter.errors import TrackingError
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tracking.reports import log_config, log_files
from shunter.tracking.runs import open_run, start_run_tree
from tests.engine.synthetic import write_dataset

SECRETS = {
    "MLFLOW_TRACKING_PASSWORD": "geheim-mlflow",
    "PREFECT_API_AUTH_STRING": "admin:geheim-prefect",
    "SOME_SERVICE_TOKEN": "geheim-token",
    "MLFLOW_REGISTRY_URI": "postgresql://me:geheim-address@host/db",
}

ADDRESS = "https://me:geheim-user@host/log.tsv?sig=geheim-query"


def test_an_address_with_secrets_is_no_data() -> None:
    with pytest.raises(ValidationError) as caught:
        TrainRequest(data=ADDRESS)
    assert "geheim" not in str(caught.value)


def test_no_secret_is_in_any_parameter_tag_or_artifact(
    tracking_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MLFLOW_TRACKING_PASSWORD", "PREFECT_API_AUTH_STRING", "SOME_SERVICE_TOKEN"):
        monkeypatch.setenv(name, SECRETS[name])
    request = TrainRequest(data="geheim-token.tsv")
    run_id = start_run_tree(request, write_dataset(tmp_path / "data", rows=100))
    log_config(run_id, "request", request)
    log_config(run_id, "environment", {name: os.environ.get(name, "") for name in SECRETS})
    run = open_run(run_id)
    run.set_tags({"run.reason": f"cannot reach {SECRETS['MLFLOW_REGISTRY_URI']} with geheim-mlflow"})
    run.set_tags({"run.note": f"{ADDRESS} has gone"})
    run.log_params({"note": "geheim-prefect is in admin:geheim-prefect"})
    note = tmp_path / "note.txt"
    note.write_text("nothing of interest")
    log_files(run_id, [note])
    root = Settings().tracking_root
    written = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert b"cannot reach postgresql://***@host/db with ***" in written
    for secret in ("geheim-mlflow", "geheim-token", "geheim-address", "geheim-user", "geheim-query"):
        assert secret.encode() not in written, secret


def test_error_about_a_store_hides_its_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:geheim-address@127.0.0.1:1/none")
    with pytest.raises(TrackingError) as caught:
        start_run_tree(TrainRequest(), write_dataset(tmp_path / "data", rows=100))
    assert "geheim" not in str(caught.value)
