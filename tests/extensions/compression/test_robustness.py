"""`shunter robustness`: measured on a registered ensemble, told on its version, and nothing of the model changed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from shunter.engine.checkpoint.storage import save_model
from shunter.errors import RequestError
from shunter.extensions.compression.compression_requests import RobustnessRequest
from shunter.extensions.compression.robustness.robustness_flow import robustness as robustness_flow
from shunter.extensions.compression.robustness.trial import ANSWERS
from shunter.flows.command.cli import app
from shunter.ingestion.request import ingest_request
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.tracking.registry.models import register_model
from shunter.tracking.registry.versions import version_by_alias, version_by_number, with_part
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri

ROWS = 400
SPEC = model_spec(embedding_dim=4, bottom_widths=(), top_widths=(16,))


@pytest.fixture(scope="module")
def kept_home(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    folder, random = tmp_path_factory.mktemp("robust"), np.random.default_rng(0)
    frame = {"user": random.integers(0, 20, ROWS), "item": random.integers(0, 15, ROWS)}
    pd.DataFrame({"click": random.integers(0, 2, ROWS), **frame}).to_parquet(folder / "log.parquet")
    (folder / "schema.json").write_text(json.dumps({"label": "click", "categorical": ["user", "item"]}))
    (folder / "home" / "mlflow").mkdir(parents=True)
    shutil.copy(empty_database, folder / "home" / "mlflow" / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(folder / "home"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        request = TrainRequest(data=str(folder / "log.parquet"), schema_file=str(folder / "schema.json"))
        dataset, _ = ingest_request(request)
        models = [build_model(SPEC, dataset.features, seed=seed).eval() for seed in range(2)]
        save_model(Ensemble(models, [0.5, 0.5]).eval(), folder / "model")
        register_model(start_run_tree(request, dataset), dataset, folder / "model", "shop", metrics={})
    return folder / "home"


@pytest.fixture
def home(kept_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHUNTER_HOME", str(kept_home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return kept_home


@pytest.mark.usefixtures("home")
def test_what_is_measured_stands_on_the_version_and_in_its_run() -> None:
    asked = ["robustness", "--model", "shop", "--error-rates", "1e-3,1e-2", "--repeats", "2", "--seed", "3"]
    for _ in range(2):
        shown = CliRunner().invoke(app, asked)
        assert shown.exit_code == 0, shown.output
        assert "shop/1 keeps an AUC of" in shown.output.replace("\n", " ")
    client = MlflowClient(tracking_uri())
    version = client.get_model_version("shop", "1")
    assert (version.description or "").count("## Under errors of the memory") == 1
    assert "robustness.words" in version_by_number("shop", 1).tags
    runs = [run for run in client.search_runs(["1"]) if run.data.tags.get("run.kind") == "robustness"]
    assert len(runs) == 2
    first, again = (run.data.metrics for run in runs)
    assert first == again  # the same seed draws the same errors
    assert {f"robustness.auc.{answer}.0.01" for answer in ANSWERS} <= first.keys()


@pytest.mark.usefixtures("home")
def test_a_floor_above_the_model_itself_is_refused() -> None:
    with pytest.raises(RequestError, match="--min-auc"):
        robustness_flow.fn(RobustnessRequest(model="shop", min_auc=0.99))


def test_a_part_of_a_description_is_replaced_and_nothing_else() -> None:
    once = with_part("# Card\n\nText.\n\n## Data\n\nRows.\n", "Errors", "few")
    assert once == "# Card\n\nText.\n\n## Data\n\nRows.\n\n## Errors\n\nfew\n"
    assert with_part(once, "Errors", "more") == once.replace("few", "more")
    between = "## Errors\n\nfew\n\n## Data\n\nRows.\n"
    assert with_part(between, "Errors", "more") == "## Data\n\nRows.\n\n## Errors\n\nmore\n"
    assert with_part("", "Errors", "few") == "## Errors\n\nfew\n"


@pytest.mark.usefixtures("home")
def test_where_there_is_one_version_no_other_is_named() -> None:
    with pytest.raises(RequestError, match="'shop'"):
        version_by_alias("shop", "best")
