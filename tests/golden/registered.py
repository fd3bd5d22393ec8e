"""Models in MLflow's format, as they are registered: what they are made from, and what they say of raw rows."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
import yaml
from mlflow import MlflowClient

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.interactions import read_graph, read_interactions, sides
from shunter.engine.ranking.storage import StoredRanker, save_ranker
from shunter.engine.ranking.trainer import RankingData, train_ranking
from shunter.models.ensemble import Ensemble
from shunter.models.graph import graph_spec
from shunter.models.graph.ranker import VectorRanker
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.tracking.registry.models import load_champion, register_model
from shunter.tracking.registry.named import export_model
from shunter.tracking.registry.signing import DATA, digest_of
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.golden.homes import at_home
from tests.golden.ingestions import LOGS, ingested
from tests.golden.recorded import RECORDED, read, write

MODELS = {"ensemble": RECORDED / "registered_model", "ranker": RECORDED / "registered_ranker"}
SCORES = "scores.json"
LOG = "csv by time"
ROWS = 12
SPEC = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))
OTHER_SPEC = model_spec(family="dcnv2", embedding_dim=4, top_widths=(8,), cross_layers=1)
RATES = Hyperparameters(dense_learning_rate=1e-2, embedding_learning_rate=0.2)
EXECUTION = Execution(threads=1, batch_size=16)
SCHEDULE = Schedule(max_epochs=2, seed=4)
EMPTY = {"run_id": "0" * 32, "artifact_path": "model", "model_id": "m-" + "0" * 32}


def write_registered(folder: Path) -> None:
    """Record a registered ensemble and a registered ranker with their scores."""
    dataset = ingested(LOG, folder)
    makers = {"ensemble": _save_ensemble, "ranker": _save_ranker}
    frame = raw_rows()
    with at_home(folder / "home"):
        for name, save in makers.items():
            save(dataset, folder / name)
            run_id = start_run_tree(TrainRequest(data="clicks"), dataset)
            version = register_model(run_id, dataset, folder / name, name, metrics={}, example=frame.head(2))
            found = MlflowClient(tracking_uri()).get_model_version_download_uri(name, str(version.version))
            shutil.rmtree(MODELS[name], ignore_errors=True)
            shutil.copytree(found, MODELS[name])
            _forget_place(MODELS[name] / "MLmodel")
    write(SCORES, {name: scores(mlflow.pyfunc.load_model(str(path)), frame) for name, path in MODELS.items()})


def raw_rows() -> pd.DataFrame:
    """Rows of the log as they are written, one with a value that was never seen and one with nothing but its ids."""
    frame = pd.read_csv(LOGS / "clicks.csv", dtype=str, keep_default_na=False).head(ROWS)
    frame = frame.drop(columns=["click", "when", "worth", "unnamed"])
    frame.loc[1, ["user", "item", "tags"]] = ["nobody", "nothing", "unheard|new"]
    frame.loc[2, ["price", "age", "shop", "town", "tags"]] = ""
    return frame


def scores(model: Any, frame: pd.DataFrame) -> list[float]:
    """What a loaded model says."""
    return [float(score) for score in np.asarray(model.predict(frame)).reshape(-1)]


@contextmanager
def accepted(name: str) -> Iterator[None]:
    """Load a recorded model, which was registered before models were signed, within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_ACCEPTED_MODELS", digest_of(MODELS[name] / DATA))
        yield


def scores_from_the_file(name: str) -> list[float]:
    """Load a recorded model as a user of MLflow does who has exported it."""
    with tempfile.TemporaryDirectory() as folder, accepted(name):
        exported = Path(folder, "exported")
        export_model(str(MODELS[name]), exported)
        return scores(mlflow.pyfunc.load_model(str(exported)), raw_rows())


def scores_of_champion(name: str, folder: Path) -> list[float]:
    """Put a recorded model into a registry of its own, and load it from there."""
    with at_home(folder / "home"), accepted(name):
        client = MlflowClient(tracking_uri())
        client.create_registered_model(name)
        version = client.create_model_version(name, source=str(MODELS[name]))
        client.set_registered_model_alias(name, "champion", version.version)
        return scores(load_champion(name), raw_rows())


def recorded_scores(name: str) -> list[float]:
    """What the model said when it was registered."""
    return read(SCORES)[name]


def _save_ensemble(dataset: Dataset, folder: Path) -> None:
    models = [train(TrainingJob(dataset, spec, RATES, EXECUTION, SCHEDULE)).model for spec in (SPEC, OTHER_SPEC)]
    save_model(Ensemble(models, [0.3, 0.7]), folder)


def _save_ranker(dataset: Dataset, folder: Path) -> None:
    data = RankingData(
        graph=read_graph(dataset), validation=read_interactions(dataset, "validation"), fingerprint=dataset.fingerprint
    )
    spec = graph_spec(embedding_dim=4, layers=2)
    result = train_ranking(TrainingJob(data, spec, RankingHyperparameters(), EXECUTION, SCHEDULE))
    user, item = sides(dataset)
    stored = StoredRanker(
        ranker=VectorRanker.of(result.model), spec=spec, features=dataset.features, user=user, item=item
    )
    save_ranker(stored, folder)


def _forget_place(description: Path) -> None:
    """The description names the folder and the run that it was made in, which are gone."""
    values = yaml.safe_load(description.read_text())
    description.write_text(yaml.safe_dump({**values, **EMPTY}))


def loader_module(name: str) -> str:
    """What a recorded model says shall load it."""
    return yaml.safe_load((MODELS[name] / "MLmodel").read_text())["flavors"]["python_function"]["loader_module"]
