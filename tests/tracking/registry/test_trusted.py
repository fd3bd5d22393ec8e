"""Models planted in the registry: what would run their code is refused before a line of it runs."""

import contextlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pytest
import yaml
from mlflow import MlflowClient

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import load_model, save_model
from shunter.errors import CheckpointError, DataError, TrackingError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sources.open import open_source
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.tracking.registry.models import load_champion, register_model
from shunter.tracking.registry.signing import check_model_folder
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri

Plant = Callable[[Path], None]


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.marker,)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> tuple[Path, Path]:
    """A home with a champion of ours, and the champion's folder."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        (home / "mlflow").mkdir()
        shutil.copy(empty_database, home / "mlflow" / "mlflow.db")
        dataset, _ = ingest_source(open_source("synthetic:2000", None, None, home), home / "cache", 0, 0.01)
        save_model(build_model(model_spec(embedding_dim=4), dataset.features, seed=0).eval(), home / "model")
        register_model(start_run_tree(TrainRequest(), dataset), dataset, home / "model", "shunter", metrics={})
        folder = MlflowClient(tracking_uri()).get_model_version_download_uri("shunter", "1")
    return home, Path(folder)


@pytest.fixture
def plant(honest: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Plant], Path]:
    """Make a copy of the champion the champion, after something was done to it."""
    monkeypatch.setenv("SHUNTER_HOME", str(honest[0]))

    def put(change: Plant) -> Path:
        folder = tmp_path / "planted"
        shutil.copytree(honest[1], folder)
        change(folder)
        client = MlflowClient(tracking_uri())
        version = client.create_model_version("shunter", source=str(folder))
        client.set_registered_model_alias("shunter", "champion", version.version)
        return folder

    return put


def edit(folder: Path, **changes: object) -> None:
    path = folder / "MLmodel"
    description = yaml.safe_load(path.read_text())
    flavor = description["flavors"]["python_function"]
    description["flavors"]["python_function"] = {**flavor, **changes}
    path.write_text(yaml.safe_dump(description))


def code_of_its_own(folder: Path) -> None:
    (folder / "code").mkdir()
    (folder / "code" / "evil_loader.py").write_text(
        f"import pathlib\npathlib.Path({str(folder.parent / 'marker')!r}).touch()\ndef _load_pyfunc(path): ...\n"
    )
    edit(folder, code="code", loader_module="evil_loader")


def code_beside_our_loader(folder: Path) -> None:
    """The loader is ours, but a folder of the model would come onto the path of what it imports."""
    (folder / "code").mkdir()
    (folder / "code" / "evil.py").write_text("")
    edit(folder, code="code")


def pickled_model(folder: Path) -> None:
    (folder / "python_model.pkl").write_bytes(pickle.dumps(Bomb(folder.parent / "marker")))
    edit(folder, loader_module="mlflow.pyfunc.model", python_model="python_model.pkl")


def another_flavor(folder: Path) -> None:
    path = folder / "MLmodel"
    description = yaml.safe_load(path.read_text())
    description["flavors"]["sklearn"] = {"pickled_model": "model.pkl"}
    path.write_text(yaml.safe_dump(description))


def pickle_among_the_data(folder: Path) -> None:
    (folder / "data" / "recommender" / "model.pkl").write_bytes(pickle.dumps(Bomb(folder.parent / "marker")))


def data_elsewhere(folder: Path) -> None:
    edit(folder, data="../../elsewhere")


def linked_file(folder: Path) -> None:
    (folder / "more.json").symlink_to("/etc/passwd")


def tagged_yaml(folder: Path) -> None:
    marker = folder.parent / "marker"
    (folder / "MLmodel").write_text(f"flavors: !!python/object/apply:pathlib.Path.touch [{marker}]\n")


@pytest.mark.parametrize(
    "change",
    [
        code_of_its_own,
        code_beside_our_loader,
        pickled_model,
        another_flavor,
        pickle_among_the_data,
        data_elsewhere,
        linked_file,
        tagged_yaml,
    ],
)
def test_planted_champion_is_refused_and_runs_nothing(plant: Callable[[Plant], Path], change: Plant) -> None:
    folder = plant(change)
    with pytest.raises(TrackingError, match="'shunter'") as caught:
        load_champion("shunter")
    assert "\n" not in str(caught.value)
    assert not (folder.parent / "marker").exists()


def test_plants_would_grow_without_the_look(plant: Callable[[Plant], Path]) -> None:
    """The test above would prove nothing if MLflow did not run what was planted."""
    folder = plant(code_of_its_own)
    with contextlib.suppress(Exception):  # what is planted is no model
        mlflow.pyfunc.load_model(str(folder))
    assert (folder.parent / "marker").exists()


def test_champion_of_our_own_passes(honest: tuple[Path, Path]) -> None:
    check_model_folder(honest[1], "shunter")


def test_weights_that_are_a_pickle_are_refused_even_with_their_checksum(
    honest: tuple[Path, Path], tmp_path: Path
) -> None:
    import hashlib

    folder = tmp_path / "model"
    shutil.copytree(honest[1] / "data" / "recommender" / "model", folder)
    room = bytes((folder / "model.safetensors").stat().st_size)  # for the tables that the description names
    weights = pickle.dumps(Bomb(tmp_path / "marker")) + room
    (folder / "model.safetensors").write_bytes(weights)
    description = read_json(folder / "model.json")
    (folder / "model.json").write_text(json.dumps({**description, "sha256": hashlib.sha256(weights).hexdigest()}))
    with pytest.raises(CheckpointError, match="holds no safetensors"):
        load_model(folder)
    assert not (tmp_path / "marker").exists()


def test_vocabulary_that_is_a_pickle_is_refused(honest: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(honest[1] / "data" / "recommender" / "encoder", folder)
    bomb = np.array([Bomb(tmp_path / "marker")], dtype=object)
    np.savez(folder / "vocabulary.npz", keys=bomb, ends=bomb)
    with pytest.raises(DataError, match="no readable encoder"):
        Encoder.load(folder)
    assert not (tmp_path / "marker").exists()
