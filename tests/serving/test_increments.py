"""A server elsewhere: it has an exported model, and increments of it are put beside it while it answers."""

import json
import logging
import shutil
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest

from shunter.errors import RequestError
from shunter.serving.metrics import Metrics
from shunter.serving.model_updater import ModelUpdater
from shunter.tracking.registry.models import load_champion
from shunter.tracking.registry.named import export_increment, export_model
from tests.serving.conftest import Serving


@pytest.fixture
def exported(home: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The first version as exported, and the increment that makes the second of it."""
    model, increment = tmp_path / "model", tmp_path / "made"
    export_model("shop/1", model)
    export_increment("shop/2", increment, str(model))
    (tmp_path / "came").mkdir()
    return model, increment


def test_an_increment_takes_over_while_the_server_answers(
    serving: Serving, exported: tuple[Path, Path], rows: pd.DataFrame, tmp_path: Path
) -> None:
    model, increment = exported
    with serving(str(model), follow_seconds=0, increments=tmp_path / "came") as server:
        assert not server.updater.check_for_update()
        before = ask(server.port, rows)
        increment.rename(tmp_path / "came" / "1")
        assert server.updater.check_for_update()
        after = ask(server.port, rows)
        assert httpx.get(f"http://127.0.0.1:{server.port}/v2/models/model/versions/2").status_code == 200
        assert not server.updater.check_for_update()
    assert after == np.asarray(load_champion("shop").predict(rows.head(5))).tolist() != before
    again = ModelUpdater(str(model), Metrics(), increments=tmp_path / "came")  # started anew, it has them at once
    assert (again.current().name, again.current().title) == ("model", "shop/2")


def test_one_that_is_on_its_way_is_told_once_and_taken_when_it_is_whole(
    exported: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, increment = exported
    updater = ModelUpdater(str(model), Metrics(), increments=tmp_path / "came")
    shutil.copytree(increment, tmp_path / "came" / "1", ignore=shutil.ignore_patterns("*.safetensors"))
    with caplog.at_level(logging.WARNING):
        assert not updater.check_for_update()
        assert not updater.check_for_update()
    assert [record.name for record in caplog.records].count("shunter.serving.model_updater") == 1
    shutil.copy(increment / "increment.safetensors", tmp_path / "came" / "1")
    assert updater.check_for_update()
    assert updater.current().version == "2"


def test_two_since_the_same_model_and_names_that_change_by_themselves_are_refused(
    exported: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, increment = exported
    updater = ModelUpdater(str(model), Metrics(), increments=tmp_path / "came")
    for name in "ab":
        shutil.copytree(increment, tmp_path / "came" / name)
    with caplog.at_level(logging.WARNING):
        assert not updater.check_for_update()
    assert "are two increments of the same base model" in caplog.text
    with pytest.raises(RequestError, match="is updated from the registry"):
        ModelUpdater("shop", Metrics(), increments=tmp_path / "came")
    with pytest.raises(RequestError, match="is not a folder"):
        ModelUpdater(str(model), Metrics(), increments=tmp_path / "nowhere")


def ask(port: int, rows: pd.DataFrame) -> list[float]:
    body = {"dataframe_records": json.loads(str(rows.head(5).to_json(orient="records")))}
    answer = httpx.post(f"http://127.0.0.1:{port}/invocations", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]
