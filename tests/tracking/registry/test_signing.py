"""Signed models: exchanged ones, those of another home and those without a signature."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.data.dataset import Dataset
from shunter.errors import Distrust, RequestError, TrackingError, UntrustedModelError
from shunter.flows.command.cli import app
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.open import open_source
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tracking.registry.model_keys import stored_key_fault, stored_keys
from shunter.tracking.registry.models import load_champion, register_model
from shunter.tracking.registry.named import open_model
from shunter.tracking.registry.signing import accept_model
from shunter.tracking.registry.versions import champion_of, download
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.faults.damage import flipped

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

    def by_folder() -> object:
        with open_model(str(folder)) as model:
            return model

    return [lambda: load_champion("shunter"), lambda: mlflow.pyfunc.load_model(str(folder)), by_download, by_folder]


def rows(registered: Registered) -> pd.DataFrame:
    return pd.DataFrame({name: ["1", "2"] for name in [field.name for field in registered[1].fields]})


def test_the_key_of_the_home_is_for_its_owner_alone(champion: Path) -> None:
    path = Settings().model_key_path
    assert (path.stat().st_mode & 0o777, path.stat().st_size) == (0o600, 32)
    key = path.read_bytes()
    assert key.hex() not in (champion / SIGNED).read_text()


def distrust(load: Callable[[], object]) -> tuple[Distrust, str]:
    """Why a model is refused, and its fingerprint."""
    with pytest.raises(UntrustedModelError) as caught:
        load()
    assert "\n" not in str(caught.value)
    return caught.value.reason, caught.value.fingerprint


def test_a_signed_model_is_loaded_in_every_way(champion: Path) -> None:
    for load in ways_to_load(champion):
        assert load() is not None


def test_weights_and_checksum_exchanged_together_are_refused(champion: Path, registered: Registered) -> None:
    other_weights(champion, registered[1])
    for load in ways_to_load(champion):
        assert distrust(load)[0] is Distrust.CHANGED


def test_a_changed_encoder_is_refused(champion: Path) -> None:
    path = champion / "data" / "recommender" / "encoder" / "encoder.json"
    path.write_text(path.read_text().replace('"hash_size": null', '"hash_size": 5', 1) + " ")
    for load in ways_to_load(champion):
        assert distrust(load)[0] is Distrust.CHANGED


def test_a_new_version_cannot_do_without_a_signature(champion: Path, registered: Registered) -> None:
    other_weights(champion, registered[1])
    (champion / SIGNED).unlink()
    key = Settings().model_key_path
    for make_key_new in (False, True):
        if make_key_new:  # as `cp -r` of a home does
            os.utime(key, (2**32, 2**32))
        for load in ways_to_load(champion):
            assert distrust(load)[0] is Distrust.UNSIGNED
    key.unlink()
    for load in ways_to_load(champion):
        assert distrust(load)[0] is Distrust.UNSIGNED


def test_an_unsigned_model_is_loaded_once_its_fingerprint_is_accepted(champion: Path, registered: Registered) -> None:
    (champion / SIGNED).unlink()
    loads = ways_to_load(champion)
    _, fingerprint = distrust(loads[0])
    with pytest.raises(RequestError):
        accept_model("../model.key")
    accept_model(fingerprint)
    for load in loads:
        load()
    other_weights(champion, registered[1])
    for load in loads:
        assert distrust(load)[0] is Distrust.UNSIGNED


def test_models_of_a_former_key_are_loaded(champion: Path, registered: Registered) -> None:
    key, dataset = Settings().model_key_path, registered[1]
    key.unlink()
    model = Settings().home / "model"
    register_model(start_run_tree(TrainRequest(), dataset), dataset, model, "other", metrics={})
    load_champion("other")
    for load in ways_to_load(champion):
        load()
    former, *others = (path for path in stored_keys() if path.read_bytes() != key.read_bytes())
    assert others == []
    flipped(former)
    assert stored_key_fault(former) is not None
    assert distrust(ways_to_load(champion)[0])[0] is Distrust.UNKNOWN_KEY


def test_a_model_of_another_home_is_refused_until_it_is_accepted(
    champion: Path, registered: Registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "their.key"
    shutil.move(Settings().model_key_path, theirs)
    shutil.rmtree(Settings().model_keys_directory)
    Settings().model_key_path.write_bytes(b"k" * 32)
    digest = json.loads((champion / SIGNED).read_text())["digest"]
    for load in ways_to_load(champion):
        assert distrust(load) == (Distrust.UNKNOWN_KEY, digest)
    monkeypatch.setenv("SHUNTER_ACCEPTED_MODELS", f"123, {digest}")
    for load in ways_to_load(champion):
        load()
    other_weights(champion, registered[1])
    assert distrust(ways_to_load(champion)[0])[0] is Distrust.UNKNOWN_KEY
    monkeypatch.delenv("SHUNTER_ACCEPTED_MODELS")
    monkeypatch.setenv("SHUNTER_MODEL_KEY", str(theirs))
    assert distrust(ways_to_load(champion)[0])[0] is Distrust.CHANGED


def test_the_fingerprint_of_an_export_is_printed_and_accepted(
    champion: Path, registered: Registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder, table = CliRunner().invoke, tmp_path / "exported", tmp_path / "rows.csv"
    rows(registered).to_csv(table, index=False)
    told = run(app, ["export", "shunter", str(folder)]).stdout
    (fingerprint,) = re.findall(r"\b[0-9a-f]{64}\b", told)
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "another"))
    predict = ["predict", str(folder), str(table)]
    assert run(app, predict).exit_code == TrackingError.exit_code
    assert run(app, [*predict, "--accept", "0" * 64]).exit_code == TrackingError.exit_code
    assert run(app, [*predict, "--accept", fingerprint]).exit_code == 0
    assert Settings().home.stat().st_mode & 0o777 == 0o700
    assert run(app, predict).exit_code == 0


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
