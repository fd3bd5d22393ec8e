"""A server with less memory than its tables take: the same scores, figures of where rows lay, takeover, increments."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from mlflow.pyfunc import PyFuncModel

from shunter.errors import HardwareError, RequestError
from shunter.extensions.tiers.stored.tables import StoredEmbeddings
from shunter.extensions.tiers.stored_models import stored_tables
from shunter.serving.metrics import Metrics
from shunter.serving.model_updater import ModelUpdater
from shunter.tracking.registry.models import load_champion
from shunter.tracking.registry.named import export_increment, export_model
from shunter.tracking.registry.versions import champion_of, roll_back
from tests.serving.conftest import home_of_two_versions, running

MEMORY = "128KiB"


@pytest.fixture(scope="module")
def large_home(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """Two versions of a model with more users than there is memory for."""
    folder = tmp_path_factory.mktemp("large")
    many = pd.concat([rows] * 20, ignore_index=True)
    many["user"] = [f"u{place % 3_000}" for place in range(len(many))]
    return home_of_two_versions(folder, many, empty_database, "large", embedding_dim=16)


@pytest.fixture
def large(large_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home, with version 2 the champion, before and after."""
    monkeypatch.setenv("SHUNTER_HOME", str(large_home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("SHUNTER_TRACKING_DIRECTORY", raising=False)
    yield large_home
    champion = champion_of("large")
    assert champion is not None
    if champion.version != 2:
        roll_back("large", 2)


def some_rows(rows: pd.DataFrame, count: int = 40) -> pd.DataFrame:
    users = [f"u{place * 61 % 3_000}" for place in range(count)]
    return rows.head(count).assign(user=users)


def ask(port: int, rows: pd.DataFrame) -> httpx.Response:
    body = {"dataframe_records": json.loads(str(rows.to_json(orient="records")))}
    return httpx.post(f"http://127.0.0.1:{port}/invocations", json=body, timeout=60)


def test_scores_are_those_of_the_champion_and_a_new_one_takes_over(large: Path, rows: pd.DataFrame) -> None:
    some = some_rows(rows)
    with running("large", memory=MEMORY, follow_seconds=0) as server:
        (tables,) = server.updater.current().tables
        assert re.match(r"Of 2,\d{3} embedding rows \d+ stay in memory \(2 of 3 tables whole\)", tables.placement)
        second = [ask(server.port, some).json()["predictions"] for _ in range(2)]
        assert second == 2 * [np.asarray(load_champion("large").predict(some)).tolist()]
        page = httpx.get(f"http://127.0.0.1:{server.port}/metrics").text
        found = {place: float(value) for place, value in re.findall(r'table_rows_total{place="(\w+)"} (\S+)', page)}
        assert all(found[place] > 0 for place in ("pinned", "cached", "read"))
        hot = tables.hot_rows()
        roll_back("large", 1)
        assert server.updater.check_for_update()
        (new,) = server.updater.current().tables
        assert set(hot) <= set(new.hot_rows())  # the ids of both are the same
        assert ask(server.port, some).json()["predictions"] == np.asarray(load_champion("large").predict(some)).tolist()


def test_an_increment_takes_over(large: Path, rows: pd.DataFrame, tmp_path: Path) -> None:
    export_model("large/1", tmp_path / "model")
    (tmp_path / "came").mkdir()
    some = some_rows(rows)
    model = str(tmp_path / "model")
    with running(model, memory=MEMORY, follow_seconds=0, increments=tmp_path / "came") as server:
        export_increment("large/2", tmp_path / "came" / "1", model)
        assert server.updater.check_for_update()
        assert server.updater.current().tables
        assert ask(server.port, some).json()["predictions"] == np.asarray(load_champion("large").predict(some)).tolist()


def test_weights_that_change_under_a_server_are_told_and_it_goes_on(
    large: Path, rows: pd.DataFrame, tmp_path: Path
) -> None:
    export_model("large/2", tmp_path / "model")
    weights = tmp_path / "model" / "data" / "recommender" / "model" / "model.safetensors"
    with running(str(tmp_path / "model"), memory=MEMORY, follow_seconds=0) as server:
        kept, made = weights.read_bytes(), weights.stat().st_mtime_ns
        os.truncate(weights, 50_000)
        answer = ask(server.port, some_rows(rows))
        assert answer.status_code == 503
        assert "was changed while the model was in use" in answer.json()["message"]
        weights.write_bytes(kept)
        os.utime(weights, ns=(made, made))
        assert ask(server.port, some_rows(rows)).status_code == 200


def test_a_champion_larger_than_the_free_memory_is_loaded_with_its_tables_in_the_file(
    large: Path, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Python and by `shunter serve`; the scores are the same bit by bit."""
    some = some_rows(rows)
    whole = np.asarray(load_champion("large").predict(some))
    asked_for = load_champion("large", memory="128KiB")
    assert len(tables_of(asked_for)) == 1
    assert np.array_equal(np.asarray(asked_for.predict(some)), whole)
    monkeypatch.setattr("shunter.engine.checkpoint.scoring.available_memory_bytes", lambda device: 256 << 10)
    monkeypatch.setattr("shunter.engine.checkpoint.scoring.LARGEST_SHARE", 0.5)
    found = load_champion("large")
    (tables,) = tables_of(found)
    assert tables.memory.cached_rows < sum(tables.rows)
    assert np.array_equal(np.asarray(found.predict(some)), whole)
    assert ModelUpdater("large", Metrics()).current().tables
    with pytest.raises(RequestError, match="'half'"):
        load_champion("large", memory="half")


def tables_of(model: PyFuncModel) -> list[StoredEmbeddings]:
    return stored_tables(model._model_impl.model)


def test_a_memory_too_small_is_told_before_anything_is_served(large: Path) -> None:
    with pytest.raises(RequestError, match="--memory"):
        ModelUpdater("large", Metrics(), memory_bytes=1_024)


def test_one_whose_rows_cannot_be_read_does_not_take_over_and_is_told(
    large: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: StoredEmbeddings, rows: np.ndarray) -> None:
        raise HardwareError("The file of the embedding tables cannot be read.")

    updater = ModelUpdater("large", Metrics(), memory_bytes=128 << 10)
    title = updater.current().title
    monkeypatch.setattr(StoredEmbeddings, "warm", fails)
    roll_back("large", 1)
    assert not updater.check_for_update(), "what follows the registry goes on"
    assert updater.current().title == title
    assert "cannot be read" in caplog.text
