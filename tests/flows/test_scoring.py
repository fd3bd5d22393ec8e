"""Deployments without a training: what they need, what they write, and which models they may read."""

from pathlib import Path

import pytest

from shunter.errors import RequestError
from shunter.flows import scoring
from shunter.settings import Settings


def test_without_rows_a_prediction_is_refused_before_a_model_is_loaded(shunter_home: Path) -> None:
    with pytest.raises(RequestError) as refused:
        scoring.predict.fn()
    assert str(shunter_home.resolve() / "data") in str(refused.value), "the folder in which rows are found"


def test_a_run_of_a_deployment_loads_no_folder_outside_of_its_data(
    shunter_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    assert scoring.chosen_model(str(folder)) == str(folder)
    monkeypatch.setattr(scoring, "is_foreign_request", lambda: True)
    monkeypatch.setattr("shunter.ingestion.sources.guard.is_foreign_request", lambda: True)
    with pytest.raises(RequestError):
        scoring.chosen_model(str(folder))
    inside = Settings().deployment_data_directory / "model"
    assert scoring.chosen_model(str(inside)) == str(inside)
    for registered in ("shop", "shop@champion", "shop/3"):
        assert scoring.chosen_model(registered) == registered
