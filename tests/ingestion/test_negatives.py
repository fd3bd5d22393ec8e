"""Negatives of a log that holds positives alone: drawn by content, counted, and corrected in predictions."""

import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import SPLITS, Dataset
from shunter.errors import DataError
from shunter.ingestion.build import build
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.check import check
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.negatives import NegativeSampler
from shunter.ingestion.row_filter import with_negatives
from shunter.ingestion.sources.days import DaysSource, open_day
from shunter.ingestion.sources.open import open_source
from shunter.ingestion.sources.tabular import TableSource
from shunter.ingestion.workers import Work
from shunter.models.registry import build_model, model_spec
from shunter.tracking.registry.serving import Scorer

ROWS, ITEMS, PER_POSITIVE = 2_000, 41, 3
SCHEMA: dict[str, Any] = {
    "label": "bought",
    "numeric": ["price", "age"],
    "categorical": ["user", "item", "shop"],
    "multi_valued": [{"column": "tags", "separator": "|"}],
    "item": "item",
    "time": "at",
    "negatives": {"per_positive": PER_POSITIVE, "columns": ["price", "shop"]},
    "vocabulary": {"min_count": 1},
}


@pytest.fixture
def log(tmp_path: Path) -> pl.DataFrame:
    """A log with the files `log.parquet` and `schema.yaml` beside it; a tenth of the rows are not positive."""
    random = np.random.default_rng(0)
    items = random.integers(0, ITEMS, ROWS)
    frame = pl.DataFrame(
        {
            "bought": (np.arange(ROWS) % 10 > 0).astype(int),
            "user": random.integers(0, 100, ROWS),
            "age": random.integers(20, 60, ROWS),
            "item": items,
            "price": items / 4,
            "shop": [f"shop {item % 5}" for item in items],
            "tags": ["a|b" if number % 2 else "c" for number in range(ROWS)],
            "at": np.arange(ROWS),
        }
    )
    frame.write_parquet(tmp_path / "log.parquet", row_group_size=300)
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    return frame


def opened(tmp_path: Path) -> TableSource:
    source = open_source(str(tmp_path / "log.parquet"), None, str(tmp_path / "schema.yaml"), tmp_path)
    assert isinstance(source, TableSource)
    return source


def array(dataset: Dataset, part: str, name: str) -> np.ndarray:
    return np.load(dataset.directory / f"{part}.{name}.npy")


def test_each_positive_row_has_negatives_with_other_items_and_their_columns(tmp_path: Path, log: pl.DataFrame) -> None:
    source = with_negatives(opened(tmp_path))
    assert isinstance(source, TableSource)
    batches = [source.parse(chunk) for chunk in source.chunks()]
    labels = np.concatenate([batch.labels for batch in batches]).reshape(-1, PER_POSITIVE + 1)
    assert len(labels) == int(log["bought"].sum())
    assert np.array_equal(labels, np.tile([1, 0, 0, 0], (len(labels), 1)))
    assert sum(batch.left_out for batch in batches) == ROWS - len(labels)
    columns = [batch.columns for batch in batches]
    keys = np.concatenate([one.keys for one in columns], axis=1)
    numbers = np.concatenate([one.numeric for one in columns], axis=1)
    user, item, shop = keys.reshape(3, *labels.shape)
    price, age = numbers.reshape(2, *labels.shape)
    assert (user == user[:, :1]).all()
    assert (age == age[:, :1]).all()
    assert (item[:, 1:] != item[:, :1]).all()
    counts = np.unique(item[:, 1:], return_counts=True)[1]
    assert len(counts) == ITEMS
    expected = item[:, 1:].size / ITEMS
    assert np.abs(counts - expected).max() < 5 * math.sqrt(expected)  # uniform
    of_item = {key: (cost, place) for key, cost, place in zip(item[:, 0], price[:, 0], shop[:, 0], strict=True)}
    drawn = zip(item[:, 1:].ravel(), price[:, 1:].ravel(), shop[:, 1:].ravel(), strict=True)
    assert all(of_item[key] == (cost, place) for key, cost, place in drawn)
    bags = np.concatenate([np.diff(one.bags[0].offsets) for one in columns]).reshape(labels.shape)
    assert (bags == bags[:, :1]).all()
    assert {*bags.ravel()} == {1, 2}


def test_the_rate_is_stored_and_units_draw_the_same_rows(tmp_path: Path, log: pl.DataFrame) -> None:
    found = []
    for unit_bytes in (2_000, 10**9):
        (folder := tmp_path / f"{unit_bytes}").mkdir()
        found.append(build(opened(tmp_path), folder, "f", 0, 0.01, work=Work(unit_bytes=unit_bytes)))
    for part in SPLITS:
        for name in ("label", "dense", "categorical"):
            assert np.array_equal(array(found[0], part, name), array(found[1], part, name))
    dataset, rate = found[0], PER_POSITIVE / (ITEMS - 1)
    assert dataset.negative_rate == pytest.approx(rate)
    assert dataset.rows == int(log["bought"].sum()) * (PER_POSITIVE + 1)
    assert dataset.splits["train"].base_rate == pytest.approx(1 / (PER_POSITIVE + 1))
    encoder = Encoder.load(dataset.directory / "encoder")
    assert encoder.log_odds_shift == pytest.approx(math.log(rate))
    digest = encoder.digest()
    encoder.log_odds_shift = 0.0
    assert encoder.digest() != digest
    assert Dataset.load(dataset.directory).negative_rate == dataset.negative_rate


def test_predictions_are_corrected_for_the_rate(tmp_path: Path, log: pl.DataFrame) -> None:
    dataset = build(opened(tmp_path), tmp_path, "f", 0, 0.01)
    model = build_model(model_spec(embedding_dim=4), dataset.features, seed=3).eval()
    encoder, rows = Encoder.load(dataset.directory / "encoder"), log[:50].drop("bought", "at").to_pandas()
    scores, logits = Scorer(encoder, model).predict(rows), Scorer(encoder, model).logits(encoder.encode(rows))
    rate = PER_POSITIVE / (ITEMS - 1)
    odds = np.exp(logits.astype(np.float64))
    np.testing.assert_allclose(scores, odds * rate / (1 + odds * rate), rtol=1e-5)


def test_check_counts_what_is_drawn(tmp_path: Path, log: pl.DataFrame) -> None:
    checked = check(str(tmp_path / "log.parquet"), None, str(tmp_path / "schema.yaml"))
    assert "negatives" in {finding.kind for finding in checked.findings}
    assert checked.rows == int(log["bought"].sum()) * (PER_POSITIVE + 1)
    assert checked.positive_share == pytest.approx(1 / (PER_POSITIVE + 1))


def test_days_draw_from_the_items_of_all_days(tmp_path: Path, log: pl.DataFrame) -> None:
    days = []
    for number, part in enumerate((log.filter(pl.col("item") < 20), log.filter(pl.col("item") >= 20)), 1):
        part.write_parquet(tmp_path / f"{number}.parquet")
        file = [tmp_path / f"{number}.parquet"]
        days.append(open_day(date(2026, 3, number), file, None, str(tmp_path / "schema.yaml")))
    dataset, _ = ingest_source(DaysSource("days", tuple(days), held_out=date(2026, 3, 2)), tmp_path / "cache", 0, 0.01)
    assert dataset.negative_rate == pytest.approx(PER_POSITIVE / (ITEMS - 1))
    assert dataset.splits["test"].base_rate == pytest.approx(1 / (PER_POSITIVE + 1))


@pytest.mark.parametrize(
    "keys",
    [
        {"item": None},
        {"negatives": {"per_positive": 0}},
        {"negatives": {"per_positive": 1, "columns": ["colour"]}},
        {"categorical": ["user", "item", "shop", {"column": "pair", "cross": ["user", "item"]}]},
    ],
)
def test_schemas_that_draw_wrongly_are_refused(tmp_path: Path, log: pl.DataFrame, keys: dict[str, Any]) -> None:
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({**SCHEMA, **keys}))
    with pytest.raises(DataError):
        opened(tmp_path)


def test_a_single_item_is_refused(tmp_path: Path, log: pl.DataFrame) -> None:
    log.with_columns(item=pl.lit(3)).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError):
        with_negatives(opened(tmp_path))


def test_the_rate_counts_draws_with_replacement() -> None:
    sampler = NegativeSampler("item", np.arange(5, dtype=np.uint64), {}, per_positive=10)
    assert sampler.rate == 2.5  # the odds of ten draws among four others are too low, not too high
