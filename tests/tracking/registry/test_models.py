"""The registered model: what a user loads in one line scores raw rows as the training did, and holds no pickle."""

import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from scipy.special import expit

from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.errors import (
    ColumnError,
    DataError,
    RequestError,
    TrackingError,
    UnusableValuesError,
    UnusableValuesWarning,
)
from shunter.ingestion.request import ingest_request
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tracking.registry.models import RegisteredModel, load_champion, register_model
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri

SPEC = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))
FEATURES = ["price", "user", "item", "genres"]
NEEDED = ("model/model.safetensors", "model/model.json", "encoder/encoder.json")


@dataclass(frozen=True)
class Trained:
    """A click log, and a model trained on it."""

    request: TrainRequest
    frame: pd.DataFrame
    dataset: Dataset
    model_directory: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("click log")
    random = np.random.default_rng(0)
    rows = 1_200
    user = random.integers(0, 20, rows)
    frame = pd.DataFrame(
        {
            "click": (random.random(rows) < expit(user / 5 - 2)).astype(int),
            "price": np.where(random.random(rows) < 0.1, np.nan, random.gamma(2.0, 10.0, rows)),
            "user": user,
            "item": [f"item {number}" for number in random.integers(0, 15, rows)],
            "genres": ["|".join(random.choice(["war", "love", "crime"], random.integers(0, 3), False)) for _ in user],
            "time": np.arange(rows),
        }
    )
    frame.to_parquet(folder / "clicks.parquet")
    schema = {
        "label": "click",
        "numeric": ["price"],
        "categorical": ["user", "item"],
        "multi_valued": [{"column": "genres", "separator": "|"}],
        "time": "time",
    }
    (folder / "schema.json").write_text(json.dumps(schema))
    request = TrainRequest(data=str(folder / "clicks.parquet"), schema_file=str(folder / "schema.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(folder / "home"))
        dataset, _ = ingest_request(request)
    result = train(TrainingJob(dataset, SPEC, Hyperparameters(), Execution(batch_size=64), Schedule(max_epochs=1)))
    save_model(result.model, folder / "model")
    return Trained(request, frame, dataset, folder / "model")


@pytest.fixture
def parent(tracking_root: Path, trained: Trained) -> str:
    return start_run_tree(trained.request, trained.dataset)


@pytest.fixture
def registered(parent: str, trained: Trained) -> RegisteredModel:
    return register_model(
        parent,
        trained.dataset,
        trained.model_directory,
        "shunter",
        metrics={"quality.test.auc": 0.7},
        example=trained.frame.head(3).filter(FEATURES),
    )


def test_one_line_in_a_fresh_process_scores_raw_rows_as_training_did(
    registered: RegisteredModel, trained: Trained, tmp_path: Path
) -> None:
    script = (
        "import mlflow, pandas, sys\n"
        "frame = pandas.read_parquet(sys.argv[1])\n"
        "scores = mlflow.pyfunc.load_model('models:/shunter@champion').predict(frame)\n"
        "print([float(score) for score in scores])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, trained.request.data],
        cwd=tmp_path,
        env={
            "MLFLOW_TRACKING_URI": tracking_uri(),
            "SHUNTER_HOME": str(Settings().home),  # whose key signed the model
            "PATH": "",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    scores = np.array(json.loads(done.stdout.strip().splitlines()[-1]))
    assert len(scores) == len(trained.frame)
    # The split by time puts the last rows into the test part, in their order.
    evaluation = evaluate(load_model(trained.model_directory), trained.dataset, "test", Execution())
    test_rows = slice(-len(evaluation.labels), None)
    assert trained.frame["click"].to_numpy()[test_rows].tolist() == evaluation.labels.tolist()
    np.testing.assert_allclose(scores[test_rows], expit(evaluation.logits), atol=1e-6)


def test_champion_is_loaded_without_naming_the_store(registered: RegisteredModel, trained: Trained) -> None:
    champion = load_champion("shunter")
    scores = champion.predict(trained.frame[FEATURES])
    assert scores.shape == (len(trained.frame),)
    assert ((scores > 0) & (scores < 1)).all()
    shuffled = trained.frame.sample(frac=1, random_state=1)
    np.testing.assert_allclose(champion.predict(shuffled), scores[shuffled.index], atol=1e-6)


def test_rows_of_other_types_unknown_values_and_none_at_all_are_scored(
    registered: RegisteredModel, trained: Trained
) -> None:
    champion = load_champion("shunter")
    as_text = trained.frame[FEATURES].head(5).astype(str)
    np.testing.assert_allclose(champion.predict(as_text), champion.predict(trained.frame[FEATURES].head(5)), atol=1e-6)
    whole = pd.DataFrame({"price": [3, 7], "user": ["never seen", None], "item": [1, 2], "genres": ["", None]})
    assert np.isfinite(champion.predict(whole)).all()
    assert champion.predict(trained.frame[FEATURES].head(0)).shape == (0,)


def test_missing_column_is_named(registered: RegisteredModel, trained: Trained) -> None:
    with pytest.raises(DataError, match="item"):
        load_champion("shunter").predict(trained.frame[["price", "user", "genres"]])


def test_columns_are_checked_as_by_the_command(registered: RegisteredModel, trained: Trained) -> None:
    champion, frame = load_champion("shunter"), trained.frame[FEATURES].head(4)
    with pytest.raises(DataError, match="price, user, item, genres"):
        champion.predict(frame.set_axis([name.upper() for name in FEATURES], axis=1))
    with pytest.raises(ColumnError) as twice:
        champion.get_raw_model().predict(frame[[*FEATURES, "item"]])
    assert twice.value.column == "item"


def test_unreadable_values_are_told_and_refused_beyond_a_share(registered: RegisteredModel, trained: Trained) -> None:
    frame = trained.frame[FEATURES].head(4).assign(price=["abc", 1.0, 2.0, 3.0])
    with pytest.warns(UnusableValuesWarning) as told:
        load_champion("shunter").predict(frame)
    [warning] = [one.message for one in told if isinstance(one.message, UnusableValuesWarning)]
    assert warning.shares["unreadable"] == {"price": 0.25}
    load_champion("shunter", max_unknown=0.25).predict(frame)
    with pytest.raises(UnusableValuesError) as refused:
        load_champion("shunter", max_unknown=0.2).predict(frame)
    assert refused.value.code == "unusable-values"


def test_artifact_holds_no_pickle_and_no_code(registered: RegisteredModel, parent: str) -> None:
    folder = Path(MlflowClient(tracking_uri()).get_model_version_download_uri("shunter", str(registered.version)))
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"MLmodel", *(f"data/recommender/{name}" for name in NEEDED)} <= files
    assert not [name for name in files if name.endswith((".py", ".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib"))]
    for path in folder.rglob("*"):
        if path.is_file():
            assert path.read_bytes()[:1] != b"\x80", f"{path} begins as a pickle does"
            if zipfile.is_zipfile(path):  # what torch.save and numpy write: only plain arrays may be inside
                with np.load(path, allow_pickle=False) as arrays:
                    assert all(arrays[name].dtype != object for name in arrays.files)


def test_version_carries_run_figures_columns_and_alias(registered: RegisteredModel, parent: str) -> None:
    client = MlflowClient(tracking_uri())
    version = client.get_model_version_by_alias("shunter", "champion")
    assert (int(version.version), version.run_id) == (1, parent)
    assert registered.uri == "models:/shunter/1"
    run = client.get_run(parent)
    [logged] = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{parent}'")
    assert {metric.key: metric.value for metric in logged.metrics or []} == {"quality.test.auc": 0.7}
    assert run.data.tags["model.registered"] == "shunter/1"
    signature = load_champion("shunter").metadata.signature
    assert signature is not None
    assert signature.inputs.input_names() == FEATURES


def test_run_registers_once_and_the_next_run_becomes_champion(
    registered: RegisteredModel, parent: str, trained: Trained
) -> None:
    again = register_model(parent, trained.dataset, trained.model_directory, "shunter", metrics={})
    assert again == registered
    second_run = start_run_tree(trained.request, trained.dataset)
    second = register_model(second_run, trained.dataset, trained.model_directory, "shunter", metrics={})
    assert second.version == 2
    client = MlflowClient(tracking_uri())
    assert int(client.get_model_version_by_alias("shunter", "champion").version) == 2


def test_ensemble_is_registered_like_a_single_model(parent: str, trained: Trained, tmp_path: Path) -> None:
    searched = replace(SPEC, embedding_dim=8, interaction="fm", table_dims=(4, 8, 4), table_shares=(1.0, 0.5, 1.0))
    models = [build_model(spec, trained.dataset.features, seed=1).eval() for spec in (SPEC, searched)]
    save_model(Ensemble(models, [0.3, 0.7]), tmp_path / "ensemble")
    register_model(parent, trained.dataset, tmp_path / "ensemble", "pair", metrics={})
    evaluation = evaluate(load_model(tmp_path / "ensemble"), trained.dataset, "test", Execution())
    scores = load_champion("pair").predict(trained.frame.tail(len(evaluation.logits)))
    np.testing.assert_allclose(scores, expit(evaluation.logits), atol=1e-6)


@pytest.mark.parametrize("name", ["a/b", "a:b", " "])
def test_name_that_the_registry_refuses_is_said(parent: str, trained: Trained, name: str) -> None:
    with pytest.raises(RequestError, match="registered model"):
        register_model(parent, trained.dataset, trained.model_directory, name, metrics={})


def test_champion_that_does_not_exist_is_said(tracking_root: Path) -> None:
    with pytest.raises(TrackingError, match="train and register"):
        load_champion("nobody")
