"""`shunter compress`: what is registered scores raw rows wherever a model does; what cannot be is said."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError, RequestError
from shunter.extensions.compression.bench import weight_bytes
from shunter.extensions.compression.compress_flow import compress as compress_flow
from shunter.extensions.compression.compression_requests import CompressRequest
from shunter.extensions.compression.layer_forms import is_compressed
from shunter.flows.command.cli import app
from shunter.flows.command.model_commands import export, predict
from shunter.ingestion.request import ingest_request
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.tracking.registry.models import load_champion, register_model
from shunter.tracking.registry.named import export_increment, open_model
from shunter.tracking.registry.versions import roll_back, version_by_alias
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from shunter.tracking.tree import read_tree

ROWS = 1_000
SPEC = model_spec(embedding_dim=4, bottom_widths=(), top_widths=(64, 64))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = {"user": random.integers(0, 20, ROWS), "item": random.integers(0, 15, ROWS), "price": random.random(ROWS)}
    return pd.DataFrame({"click": random.integers(0, 2, ROWS), **frame})


@pytest.fixture(scope="module")
def kept_home(log: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    folder = tmp_path_factory.mktemp("compressed")
    log.to_parquet(folder / "log.parquet")
    schema = {"label": "click", "numeric": ["price"], "categorical": ["user", "item"]}
    (folder / "schema.json").write_text(json.dumps(schema))
    (folder / "home" / "mlflow").mkdir(parents=True)
    shutil.copy(empty_database, folder / "home" / "mlflow" / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(folder / "home"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        request = TrainRequest(data=str(folder / "log.parquet"), schema_file=str(folder / "schema.json"))
        dataset, _ = ingest_request(request)
        save_model(build_model(SPEC, dataset.features, seed=1).eval(), folder / "model")
        register_model(start_run_tree(request, dataset), dataset, folder / "model", "shop", metrics={})
    return folder / "home"


@pytest.fixture
def home(kept_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHUNTER_HOME", str(kept_home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(
        "shunter.extensions.compression.compress_flow.TOLERATED_AUC_LOSS", 0.5
    )  # the model has learned nothing
    yield kept_home
    if version_by_alias("shop", "champion").version != 1:
        roll_back("shop", 1)


def least_bytes() -> int:
    with open_model("shop/1") as model:
        found = load_model(model.folder / "data" / "recommender" / "model")
    return weight_bytes(found) - 1


def test_the_new_version_scores_raw_rows_wherever_a_model_does(home: Path, log: pd.DataFrame, tmp_path: Path) -> None:
    found, made = compress_flow.fn(CompressRequest(model="shop", max_bytes=least_bytes(), fine_tune_rows=500))
    assert made is not None
    assert version_by_alias("shop", "challenger").version == made.version
    assert version_by_alias("shop", "champion").version == 1
    with open_model("shop@challenger") as challenger, open_model("shop") as champion:
        small, whole = challenger.scorer().predict(log), champion.scorer().predict(log)
        kept = load_model(challenger.folder / "data" / "recommender" / "model")
        assert is_compressed(kept) or found.card.winner not in ("int8",)
        assert weight_bytes(kept) <= least_bytes()
    assert 0 < np.abs(np.asarray(small) - np.asarray(whole)).max() < 0.2
    export("shop@challenger", str(tmp_path / "exported"))
    log.to_csv(tmp_path / "rows.csv", index=False)
    predict(str(tmp_path / "exported"), [str(tmp_path / "rows.csv")], out=str(tmp_path / "scores.csv"))
    np.testing.assert_allclose(pd.read_csv(tmp_path / "scores.csv")["probability"], small, rtol=1e-12)
    roll_back("shop", made.version)  # which promotes it
    np.testing.assert_array_equal(load_champion("shop").predict(log), small)
    with pytest.raises(RequestError, match=rf"shop/{made.version} is compressed"):
        export_increment(f"shop/{made.version}", tmp_path / "increment", "1")
    with pytest.raises(RequestError, match="is compressed already"):
        compress_flow.fn(CompressRequest(model="shop"))


def test_the_table_is_printed_and_in_mlflow(home: Path) -> None:
    small = ["--max-bytes", str(least_bytes()), "--fine-tune-rows", "500"]
    given = ["compress", "--model", "shop/1", *small, "--promote"]
    told = CliRunner().invoke(app, given).output
    assert "the original model" in " ".join(told.split())
    assert "the champion" in told
    version = version_by_alias("shop", "champion")
    client = MlflowClient(tracking_uri())
    run = client.get_run(version.run_id)
    assert version.tags["compression.of"] == "shop/1"
    assert run.data.tags["run.kind"] == "compress"
    assert {"pass.int8.auc.before", "pass.int8.batch_milliseconds.after"} <= read_tree(
        version.run_id
    ).parent.metrics.keys()
    assert {one.path for one in client.list_artifacts(version.run_id, "model_card")} >= {"model_card/model_card.html"}
    assert "| none |" in (client.get_model_version("shop", str(version.version)).description or "")


def test_what_cannot_be_is_said(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="100"):
        compress_flow.fn(CompressRequest(model="shop/1", calibration_rows=100))
    with pytest.raises(RequestError, match="has a validation AUC"):
        compress_flow.fn(CompressRequest(model="shop/1", min_auc=0.9))
    export("shop/1", str(tmp_path / "folder"))
    with pytest.raises(RequestError, match="of the exported model"):
        compress_flow.fn(CompressRequest(model=str(tmp_path / "folder")))

    def none(_: Path) -> Dataset:
        raise FileNotFoundError

    monkeypatch.setattr(Dataset, "load", none)
    with pytest.raises(DataError, match="no longer in the cache"):
        compress_flow.fn(CompressRequest(model="shop/1"))
