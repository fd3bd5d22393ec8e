"""Several labels from raw rows: a column each, the same as the data set's own rows give, under MLflow's signature."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from shunter.checked_folder import MANIFEST
from shunter.engine.config import Execution
from shunter.engine.data.dataset import SPLITS, Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sources.open import open_source
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from shunter.tracking.convention import data_params, quality_metrics
from shunter.tracking.registry.models import raw_signature
from shunter.tracking.registry.serving import Scorer

SCHEMA = """
labels: [{name: click, column: click}, {name: conversion, column: bought}]
weight: weight
numeric: [number]
categorical: [user]
multi_valued: [{column: tags, separator: "|"}]
"""
TASKS = ("click", "conversion")


@pytest.fixture
def log() -> pl.DataFrame:
    """300 rows in order of `number`; what was not clicked was not bought either, and says nothing."""
    rows = range(300)
    return pl.DataFrame(
        {
            "number": [float(row) for row in rows],
            "user": [row * 7 % 23 for row in rows],
            "tags": ["|".join(f"t{tag}" for tag in range(row % 4)) for row in rows],
            "click": [int(row % 3 == 0) for row in rows],
            "bought": [float(row % 2) if row % 3 == 0 else None for row in rows],
            "weight": [1 + row % 2 for row in rows],
        }
    )


@pytest.fixture
def dataset(tmp_path: Path, log: pl.DataFrame) -> Dataset:
    log.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    source = open_source(str(tmp_path / "log.parquet"), None, str(tmp_path / "schema.yaml"), tmp_path)
    return ingest_source(source, tmp_path / "cache", seed=0, max_bad_share=0)[0]


def test_raw_rows_get_a_column_for_each_task(dataset: Dataset, log: pl.DataFrame) -> None:
    members = [build_model(model_spec(family=family), dataset.features, seed=3).eval() for family in ("dlrm", "deepfm")]
    model = Ensemble(members, [[1, 0], [3, 1]]).eval()
    scorer = Scorer(Encoder.load(dataset.directory / "encoder"), model)
    frame = log.to_pandas().drop(columns=["click", "bought", "weight"]).set_index(log["number"].to_numpy() + 1000)
    scores = scorer.predict(frame)
    assert isinstance(scores, pd.DataFrame)
    assert list(scores.columns) == list(TASKS)
    assert scores.index.equals(frame.index)
    logits = np.concatenate([evaluate(model, dataset, split, Execution()).logits for split in SPLITS])
    numbers = np.concatenate([np.load(dataset.directory / f"{split}.dense.npy")[:, 0] for split in SPLITS])
    expected = 1 / (1 + np.exp(-logits[np.argsort(numbers)].astype(np.float64)))
    np.testing.assert_allclose(scores.to_numpy(), expected, rtol=1e-5)
    assert scorer.predict(frame.iloc[:0]).shape == (0, 2)


def test_the_signature_names_the_tasks(dataset: Dataset) -> None:
    assert raw_signature(dataset).outputs.input_names() == list(TASKS)


def test_figures_of_further_tasks_end_in_their_names(dataset: Dataset) -> None:
    metrics = evaluate(build_model(model_spec(), dataset.features), dataset, "test", Execution()).metrics
    values = quality_metrics(metrics, "test")
    assert values["quality.test.auc"] == metrics.auc
    assert values["quality.test.auc.conversion"] == metrics.others["conversion"].auc
    assert data_params(dataset)["data.tasks"] == "click,conversion"


def test_what_one_class_does_not_tell_is_absent(tmp_path: Path, dataset: Dataset) -> None:
    path = dataset.directory / "test.label.npy"
    labels = np.load(path)
    labels[:, 1] = np.where(np.isnan(labels[:, 1]), np.nan, 0)
    np.save(path, labels)
    (dataset.directory / MANIFEST).unlink()  # these labels are meant
    metrics = evaluate(build_model(model_spec(), dataset.features), dataset, "test", Execution()).metrics
    names = {name for name in quality_metrics(metrics, "test") if name.endswith(".conversion")}
    assert names == {"quality.test.logloss.conversion"}
