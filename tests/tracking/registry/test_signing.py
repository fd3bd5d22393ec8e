"""Signed models: exchanged ones, those of another home and those without a signature."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.data.dataset import Dataset
from shunter.errors import TrackingError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.open import open_source
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tracking.registry import signing
from shunter.tracking.registry.models import load_champion, register_model
from shunter.tracking.registry.named import open_model
from shunter.tracking.registry.versions import champion_of, download
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.golden.registered import MODELS, raw_rows

Registered = tuple[Path, Dataset]
SIGNED = "data/recommender/signed.json"


def save(dataset: Dataset, folder: Path, seed: int) -> None:
    save_model(build_model(model_spec(embedding_dim=4), dataset.features, seed=seed).eval(), folder)


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Registered:
    """A home with a champion."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        (home / "mlflow").mkdir()
        shutil.copy(empty_database, home / "mlflow" / "mlflow.db")
        dataset, _ = ingest_source(open_source("synthetic:2000", None, None, home), home / "cache", 0, 0.01)
        save(dataset, home / "model", seed=0)
        register_model(start_run_tree(TrainRequest(), dataset), dataset, home / "model", "shunter", metrics={})
    return home, dataset


@pytest.fixture
def champion(registered: Registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that home of the test's own; the folder of its champion."""
    home = tmp_path / "home"
    shutil.copytree(registered[0], home)
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    folder = tmp_path / "champion"
    client = MlflowClient(tracking_uri())
    shutil.copytree(client.get_model_version_download_uri("shunter", "1"), folder)
    version = client.create_model_version("shunter", source=str(folder))
    client.set_registered_model_alias("shunter", "champion", version.version)
    return folder


def other_weights(folder: Path, dataset: Dataset) -> None:
    """Another model with its own checksum in the place of the one there."""
    save(dataset, folder / "data" / "recommender" / "model", seed=1)


def ways_to_load(folder: Path) -> list[Callable[[], object]]:
    def by_download() -> object:
        version = champion_of("shunter")
        assert version is not None
        return download(version, folder.parent / "downloaded")

    return [
        lambda: load_champion("shunter"),
        lambda: mlflow.pyfunc.load_model(str(folder)),
        by_download,
    ]


def rows(registered: Registered) -> pd.DataFrame:
    return pd.DataFrame({name: ["1", "2"] for name in [field.name for field in registered[1].fields]})


def test_the_key_of_the_home_is_for_its_owner_alone(champion: Path) -> None:
    path = Settings().model_key_path
    assert (path.stat().st_mode & 0o777, path.stat().st_size) == (0o600, 32)
    key = path.read_bytes()
    assert key.hex() not in (champion / SIGNED).read_text()


def test_a_signed_model_is_loaded_in_every_way(champion: Path, caplog: pytest.LogCaptureFixture) -> None:
    for load in ways_to_load(champion):
        load()
    assert "not signed" not in caplog.text


def test_weights_and_checksum_exchanged_together_are_refused(champion: Path, registered: Registered) -> None:
    other_weights(champion, registered[1])
    for load in ways_to_load(champion):
        with pytest.raises(TrackingError, match="is not what was signed") as caught:
            load()
        assert "\n" not in str(caught.value)


def test_a_changed_encoder_is_refused(champion: Path) -> None:
    path = champion / "data" / "recommender" / "encoder" / "encoder.json"
    path.write_text(path.read_text().replace('"hash_size": null', '"hash_size": 5', 1) + " ")
    for load in ways_to_load(champion):
        with pytest.raises(TrackingError, match="is not what was signed"):
            load()


def test_a_new_version_cannot_do_without_a_signature(champion: Path, registered: Registered) -> None:
    other_weights(champion, registered[1])
    (champion / SIGNED).unlink()
    for load in (ways_to_load(champion)[0], ways_to_load(champion)[2]):
        with pytest.raises(TrackingError, match="because it is not signed"):
            load()


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> None:
    """What is said once in a process was perhaps said in an earlier test."""
    signing._say_unsigned.cache_clear()


def test_a_model_of_former_code_is_loaded_and_said_to_be_unsigned(
    champion: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), open_model(str(MODELS["ensemble"])) as model:
        model.scorer().predict(raw_rows())
    assert "is not signed" in caplog.text


def test_a_version_older_than_the_key_needs_no_signature(
    champion: Path, registered: Registered, caplog: pytest.LogCaptureFixture
) -> None:
    (champion / SIGNED).unlink()
    Settings().model_key_path.unlink()
    with caplog.at_level(logging.WARNING):
        load_champion("shunter")
    dataset = registered[1]
    home = Settings().home
    register_model(start_run_tree(TrainRequest(), dataset), dataset, home / "model", "other", metrics={})
    load_champion("shunter")
    assert Settings().model_key_path.exists()
    assert "'shunter' is not signed" in caplog.text


def test_a_model_of_another_home_is_refused_until_it_is_accepted(
    champion: Path, registered: Registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "their.key"
    shutil.move(Settings().model_key_path, theirs)
    Settings().model_key_path.write_bytes(b"k" * 32)
    digest = json.loads((champion / SIGNED).read_text())["digest"]
    for load in ways_to_load(champion):
        with pytest.raises(TrackingError, match=f"the key of another home: .* SHUNTER_ACCEPTED_MODELS={digest} "):
            load()
    monkeypatch.setenv("SHUNTER_ACCEPTED_MODELS", f"123, {digest}")
    for load in ways_to_load(champion):
        load()
    other_weights(champion, registered[1])
    with pytest.raises(TrackingError, match="the key of another home"):
        load_champion("shunter")
    monkeypatch.delenv("SHUNTER_ACCEPTED_MODELS")
    monkeypatch.setenv("SHUNTER_MODEL_KEY", str(theirs))
    with pytest.raises(TrackingError, match="is not what was signed"):
        load_champion("shunter")


def test_what_is_exchanged_after_the_look_is_not_loaded(
    champion: Path, registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = load_champion("shunter").predict(rows(registered))
    load = mlflow.pyfunc.load_model

    def load_late(folder: str) -> object:
        (champion / "MLmodel").write_text("flavors: {python_function: {loader_module: evil}}")
        shutil.rmtree(champion / "data" / "recommender" / "encoder")
        return load(folder)

    monkeypatch.setattr(mlflow.pyfunc, "load_model", load_late)
    np.testing.assert_array_equal(load_champion("shunter").predict(rows(registered)), honest)
