"""What the benchmark of quality plans, merges and publishes; its runs are those of the product."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.quality.benchmark import headline, merged, planned
from benchmarks.quality.files import LOGS, QUICK_ROWS, Log, write_files
from benchmarks.quality.row import Row, recipe
from shunter.ingestion.sources.open import open_source
from shunter.requests import TrainRequest
from shunter.requests.job_file import read_job


def row(
    model: str, auc: float, *, seed: int = 0, by: str = "recipes/frappe/lr.yaml", data: str = "frappe"
) -> dict[str, Any]:
    figures = {"auc": auc, "logloss": 1 - auc}
    return {
        "data": data,
        "model": model,
        "seed": seed,
        "by": by,
        "minutes": 3.0,
        "test": figures,
        "validation": figures,
    }


def test_baselines_are_always_in_the_table_and_auto_comes_last() -> None:
    rows = planned(["frappe", "criteo"], ["auto", "dcnv2"], [0, 1], 20)
    assert [(one.data, one.model, one.seed) for one in rows] == [
        *(("frappe", model, seed) for model in ("lr", "fm", "dcnv2", "auto") for seed in (0, 1)),
        *(("criteo", "auto", seed) for seed in (0, 1)),
    ]
    assert [one.model for one in planned(["frappe"], ["auto"], [0], 20)] == ["auto"]


def test_a_row_takes_the_place_of_the_former_one_but_a_recipe_is_not_displaced_by_a_baseline_of_auto() -> None:
    auto = "shunter train --model auto"
    rows = merged([row("lr", 0.7), row("fm", 0.6, by=auto)], [row("lr", 0.9, by=auto), row("fm", 0.8, by=auto)])
    assert {one["model"]: one["test"]["auc"] for one in rows} == {"lr": 0.7, "fm": 0.8}
    assert merged(rows, [row("lr", 0.75)])[0]["test"]["auc"] == 0.75
    assert len(merged(rows, [row("lr", 0.5, seed=1), row("lr", 0.5, data="criteo")])) == 4


def test_the_headline_holds_means_over_the_seeds_and_the_time_of_auto_alone() -> None:
    figures = headline([row("dcnv2", 0.8), row("dcnv2", 0.9, seed=1), row("auto", 0.95)])
    assert figures["frappe_dcnv2_auc"] == 0.85
    assert figures["frappe_dcnv2_auc_std"] == pytest.approx(0.07071)
    assert figures["frappe_dcnv2_published_auc"] == 0.9845
    assert (figures["frappe_auto_auc"], figures["frappe_auto_logloss"], figures["frappe_auto_minutes"]) == (
        0.95,
        0.05,
        3,
    )
    assert "frappe_dcnv2_minutes" not in figures


def test_files_and_recipe_are_a_request_of_the_product(tmp_path: Path) -> None:
    parts = {
        name: pd.DataFrame({"label": [0, 1] * 20_000, "user": range(40_000)})
        for name in ("train", "validation", "test")
    }
    log = Log("Small", lambda: parts, {"label": "label", "categorical": ["user"]})

    files = write_files(log, tmp_path, quick=True)
    request = read_job(recipe("frappe", "lr"), TrainRequest, Row("frappe", "lr", 3, 20).options(files))

    assert (request.model, request.seed, request.training.baselines) == ("lr", 3, "none")
    source = open_source(request.data, None, request.source.schema_file, tmp_path, request.source.held_out)
    rows = [len(source.parse(chunk).labels) for chunk in source.chunks()]
    assert sum(rows) == QUICK_ROWS * 1.5
    assert set(LOGS) == {"frappe", "ml1m", "gamesusers", "criteo"}
    auto = TrainRequest(**Row("criteo", "auto", 0, 20).options(files))
    assert (auto.model, auto.search.search_minutes, auto.search.trials) == ("auto", 20, None)
