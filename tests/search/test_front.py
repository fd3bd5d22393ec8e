"""The front of a search: as rows, as a picture, and where it is kept."""

import csv
import json
import math
from pathlib import Path

import pytest
from mlflow import MlflowClient

from shunter.engine.config import Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.stopping import StopKind, StopLimit, StopReason
from shunter.models.registry import model_spec
from shunter.pareto import hypervolume
from shunter.requests import TrainRequest
from shunter.search.front import format_setting, front_rows
from shunter.search.result import Setting, TuneResult, front_settings
from shunter.tasks.tune.report import front_markdown, publish_front
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.engine.synthetic import write_dataset


def setting(number: int, ne: float, milliseconds: float | None, *, pruned: bool = False, over: float = -1.0) -> Setting:
    costs = {} if milliseconds is None else {"step_seconds": milliseconds / 1e3, "parameter_bytes": 2.0**20 * number}
    return Setting(
        spec=model_spec(family="deepfm" if number % 2 else "dlrm"),
        hyperparameters=Hyperparameters(),
        validation_ne=ne,
        trial_number=number,
        is_pruned=pruned,
        costs=costs,
        violations={"max_memory_gib": over},
    )


@pytest.fixture
def result() -> TuneResult:
    settings = (
        setting(3, 0.80, 5.0),
        setting(1, 0.82, 2.0),
        setting(0, 0.83, 3.0),
        setting(2, 0.90, 1.0, pruned=True),
        setting(4, 0.95, None),
        setting(5, 0.70, 0.5, over=2.0),
    )
    return TuneResult(
        settings=settings,
        complete_trials=5,
        pruned_trials=1,
        failed_trials=0,
        resumed_trials=0,
        stop_reason=StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, {"minutes": 2.0}),
        front=(3, 1, 2),
        seconds=120.0,
        joules=5000.0,
    )


def test_front_leaves_out_what_breaks_a_limit_or_has_no_cost(result: TuneResult) -> None:
    assert (
        [one.trial_number for one in front_settings(result.settings, "step_seconds")] == [3, 1, 2] == list(result.front)
    )
    assert [one.trial_number for one in front_settings(result.settings, "parameter_bytes")] == [3, 1, 0]
    assert front_settings(result.settings, "joules_per_sample") == []


def test_rows_say_what_to_choose_by(result: TuneResult) -> None:
    first = front_rows(result)[0]
    assert first == {
        "trial": 3,
        "family": "deepfm",
        "NE": 0.8,
        "ms a step": 5.0,
        "mJ a sample": None,
        "MiB": 3.0,
        "settings": "dim 16, bottom 64, top 128-64, rates 0.001 0.02",
    }


def test_rows_of_a_label_that_is_a_number_have_relative_losses(result: TuneResult) -> None:
    first = front_rows(result.model_copy(update={"is_number": True}))[0]
    assert (first["relative loss"], "NE" in first) == (0.8, False)


def test_words_of_a_setting_name_what_differs_from_the_family() -> None:
    spec = model_spec(
        embedding_dim=16, interaction="fm", table_dims=(4, 16), table_shares=(1.0, 0.25), bottom_widths=()
    )
    words = format_setting(spec, Hyperparameters(dense_learning_rate=3e-3))
    assert words == ("dim 4-16, rows kept 25%-100%, bottom none, top 128-64, interaction fm, rates 0.003 0.02")


def test_markdown_holds_the_table_and_what_ended_the_search(result: TuneResult) -> None:
    text = front_markdown(result)
    assert "| 3 | deepfm | 0.8 | 5.0 |  | 3.0 |" in text
    assert "in 2.0 minutes and 5,000 J" in text
    assert "are used up" in text
    assert text.endswith("in both NE and ms a step.")
    nothing = result.model_copy(update={"front": (), "settings": (setting(4, 0.95, None),)})
    assert "No trial within the limits" in front_markdown(nothing)


@pytest.fixture
def parent(tracking_root: object, tmp_path_factory: pytest.TempPathFactory) -> str:
    dataset: Dataset = write_dataset(tmp_path_factory.mktemp("data"), rows=200)
    return start_run_tree(TrainRequest(), dataset)


def test_mlflow_keeps_front_and_all_trials_once(parent: str, result: TuneResult, tmp_path: Path) -> None:
    publish_front(parent, result, tmp_path / "search")
    publish_front(parent, result, tmp_path / "search")
    client = MlflowClient(tracking_uri())
    folder = Path(client.download_artifacts(parent, "search"))
    numbers = json.loads((folder / "front.json").read_text())
    assert [row["trial"] for row in numbers["front"]] == [3, 1, 2]
    expected = hypervolume([(0.80, 5e-3), (0.82, 2e-3), (0.90, 1e-3)], (1.0, 5e-3))
    assert math.isclose(numbers["hypervolume"], expected)
    assert expected > 0
    table = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert [row["trial"] for row in table] == [str(one.trial_number) for one in result.settings]
    assert table[-1]["breaks"] == "max_memory_gib"
