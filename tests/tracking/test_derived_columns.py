"""Models of derived features score raw rows as the data set's own rows are scored, under MLflow's signature."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sources.open import open_source
from shunter.models.registry import build_model, model_spec
from shunter.tracking.registry.click_comparison import TranslatedModel
from shunter.tracking.registry.models import raw_signature
from shunter.tracking.registry.serving import Scorer

SCHEMA = """
label: click
numeric: [user.age]
categorical: [item, {column: shop_of_item, cross: [item, shop]}]
target_encoding: [item, shop_of_item]
count_encoding: [item]
time: when
"""


@pytest.fixture
def log() -> pl.DataFrame:
    rows = range(500)
    return pl.DataFrame(
        {
            "click": [int(row * 7 % 11 < 4) for row in rows],
            "user": [{"age": float(row % 50)} for row in rows],
            "item": [row * 7 % 23 for row in rows],
            "shop": ["abc"[row % 3] for row in rows],
            "when": list(rows),
        }
    )


@pytest.fixture
def dataset(tmp_path: Path, log: pl.DataFrame) -> Dataset:
    log.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    source = open_source(str(tmp_path / "log.parquet"), None, str(tmp_path / "schema.yaml"), tmp_path)
    return ingest_source(source, tmp_path / "cache", seed=0, max_bad_share=0)[0]


def test_raw_rows_of_test_have_the_scores_of_the_data_set(dataset: Dataset, log: pl.DataFrame) -> None:
    model = build_model(model_spec(embedding_dim=4), dataset.features, seed=3).eval()
    encoder = Encoder.load(dataset.directory / "encoder")
    logits = evaluate(model, dataset, "test", Execution()).logits.astype(np.float64)
    frame = log[-len(logits) :].select("user", "item", "shop").to_pandas()
    scores = Scorer(encoder, model).predict(frame)
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits)), rtol=1e-5)
    assert len(np.unique(scores)) > len(scores) / 2
    assert set(frame.columns) <= set(raw_signature(dataset).inputs.input_names())
    translated = evaluate(TranslatedModel(model, encoder, encoder).eval(), dataset, "test", Execution()).logits
    np.testing.assert_allclose(translated, logits, rtol=1e-4, atol=1e-5)
