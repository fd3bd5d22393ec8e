"""Target and count encodings: learned on the training part, out of fold there, and carried by the encoder."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError
from shunter.ingestion.build import build
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.value_statistics import FOLDS
from shunter.ingestion.sources.days import DaysSource, open_day
from shunter.ingestion.sources.open import open_source
from shunter.ingestion.workers import Work
from shunter.serving.few_values import ValueEncoder
from tests.ingestion.conftest import Ingest

ROWS = 3_000
SCHEMA: dict[str, Any] = {
    "label": "click",
    "numeric": ["number"],
    "categorical": ["item"],
    "target_encoding": [{"column": "item", "smoothing": 10}],
    "count_encoding": ["item"],
    "time": "number",
}


@pytest.fixture
def log() -> pl.DataFrame:
    """Rows in order of time; a fifth of the items occur once, so that a leak would give their label away."""
    random = np.random.default_rng(0)
    items = np.where(random.random(ROWS) < 0.2, 1_000 + np.arange(ROWS), random.integers(0, 30, ROWS))
    frame = pl.DataFrame({"click": random.integers(0, 2, ROWS), "item": items, "number": np.arange(ROWS)})
    return frame.with_columns(pl.when(pl.col("number") % 50 != 7).then("item").alias("item"))


def dense(dataset: Dataset, part: str) -> np.ndarray:
    """The encodings of a part in units of shares and logarithms of counts, [rows, 2]."""
    statistics = Encoder.load(dataset.directory / "encoder").statistics
    scale = np.array([[one.mean, one.deviation] for one in statistics])
    return np.load(dataset.directory / f"{part}.dense.npy")[:, 1:] * scale[:, 1] + scale[:, 0]


def share(rows: pl.DataFrame, prior: float) -> float:
    return (float(rows["click"].sum()) + 10 * prior) / (len(rows) + 10)


def test_rows_of_test_have_the_shares_of_training_and_those_of_training_have_them_out_of_fold(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    dataset, _ = ingest_file(tmp_path / "log.parquet", SCHEMA)
    assert dataset.features.dense == ("number", "item_target", "item_count")
    assert [field.name for field in dataset.fields] == ["number", "item_target", "item_count", "item"]
    count = dataset.splits["train"].rows
    train, test = log[:count], log[-dataset.splits["test"].rows :]
    prior = float(train["click"].sum()) / count
    expected = []
    for item in test["item"]:
        rows = train.filter(pl.col("item") == item) if item is not None else train.clear()
        expected.append([share(rows, prior), np.log1p(len(rows))])
    assert dense(dataset, "test") == pytest.approx(np.array(expected), abs=1e-4)
    of_training = dense(dataset, "train")
    once = (train["item"] >= 1_000).fill_null(value=False).to_numpy()
    by_label = [set(np.round(of_training[once & (train["click"] == label).to_numpy(), 0], 4)) for label in (0, 1)]
    assert by_label[0] == by_label[1]  # a value of one row has the share of the other folds, whatever its label
    assert 1 < len(by_label[0]) <= FOLDS
    assert np.corrcoef(of_training[:, 0], train["click"])[0, 1] < 0.1


def test_a_frame_is_encoded_by_what_the_encoder_carries(tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    dataset, _ = ingest_file(tmp_path / "log.parquet", SCHEMA)
    encoder = Encoder.load(dataset.directory / "encoder")
    test = log[-dataset.splits["test"].rows :]
    stored = np.load(dataset.directory / "test.dense.npy")
    assert np.array_equal(encoder.encode(test.to_pandas()).dense, stored)
    assert np.array_equal(encoder.encode_table(test[:3].to_dict(), 3).dense, stored[:3])
    assert encoder.columns == ("number", "item")
    assert ValueEncoder(encoder).encode({name: test[name].to_list() for name in encoder.columns}, len(test)) is None
    without, _ = ingest_file(tmp_path / "log.parquet", {**SCHEMA, "target_encoding": []})
    digests = {encoder.digest(), Encoder.load(without.directory / "encoder").digest()}
    encoder.save(tmp_path / "copy")
    assert len(digests | {Encoder.load(tmp_path / "copy").digest()}) == 2


def test_units_give_the_same_arrays_and_nights_keep_the_scale(tmp_path: Path, log: pl.DataFrame) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text(yaml.safe_dump(SCHEMA))
    log.write_parquet(tmp_path / "log.parquet", row_group_size=400)
    source = open_source(str(tmp_path / "log.parquet"), None, str(schema), tmp_path)
    arrays = []
    for unit_bytes in (2_000, 10**9):
        (folder := tmp_path / f"{unit_bytes}").mkdir()
        build(source, folder, "f", 0, 0.01, work=Work(unit_bytes=unit_bytes))
        arrays.append(np.load(folder / "train.dense.npy"))
    assert np.array_equal(*arrays)
    base = Encoder.load(tmp_path / "2000" / "encoder")
    days = tuple(open_day(date(2026, 3, day), [tmp_path / "log.parquet"], None, str(schema)) for day in (1,))
    dataset, _ = ingest_source(DaysSource("days", days, base=base), tmp_path / "cache", 0, 0.01)
    night = Encoder.load(dataset.directory / "encoder")
    scales = [[(one.mean, one.deviation) for one in encoder.statistics] for encoder in (base, night)]
    assert scales[0] == scales[1]
    assert not np.array_equal(base.statistics[1].values, night.statistics[1].values)


def test_a_night_of_few_rows_continues_the_counts_of_the_champion(tmp_path: Path, log: pl.DataFrame) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text(yaml.safe_dump(SCHEMA))
    log.write_parquet(tmp_path / "log.parquet")
    log[:40].write_parquet(tmp_path / "day.parquet")

    def ingested(file: str, base: Encoder | None) -> tuple[Dataset, Encoder]:
        day = open_day(date(2026, 3, 1), [tmp_path / file], None, str(schema))
        dataset, _ = ingest_source(DaysSource("days", (day,), base=base), tmp_path / "cache", 0, 0.01)
        return dataset, Encoder.load(dataset.directory / "encoder")

    _, base = ingested("log.parquet", None)
    few, night = ingested("day.parquet", base)
    _, alone = ingested("day.parquet", None)
    for before, now, new in zip(base.statistics, night.statistics, alone.statistics, strict=True):
        assert before.counts is not None
        assert now.counts is not None
        assert new.counts is not None
        assert np.array_equal(now.counts.sum(axis=1), before.counts.sum(axis=1) + new.counts.sum(axis=1))
        assert {*before.keys, *new.keys} == {*now.keys}
        assert np.abs(now.encode(before.keys) - before.encode(before.keys)).mean() < 0.2
    target, count = night.statistics
    assert target.counts is not None
    rows, positives = target.counts[:, 1:]
    assert target.values == pytest.approx((positives + 10 * target.default) / (rows + 10), abs=1e-5)
    assert count.values == pytest.approx(np.log1p(rows), abs=1e-5)
    of_training = dense(few, "train")
    known = np.isin(target.keys, base.statistics[0].keys)
    assert known.any()
    assert of_training[:, 1].max() > np.log1p(40)  # more rows than the night has

    former = Encoder.load(few.directory / "encoder")
    former.statistics = tuple(replace(one, counts=None) for one in base.statistics)  # as a relearning night passes them
    _, again = ingested("day.parquet", former)
    assert again.statistics[1].counts is not None
    assert alone.statistics[1].counts is not None
    assert np.array_equal(again.statistics[1].counts, alone.statistics[1].counts)


def test_ranking_models_are_said_not_to_read_them(
    tmp_path: Path, log: pl.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    source = open_source(str(tmp_path / "log.parquet"), None, str(tmp_path / "schema.yaml"), tmp_path)
    ingest_source(source, tmp_path / "cache", 0, 0.01)
    assert not caplog.records
    ingest_source(source, tmp_path / "cache", 0, 0.01, positives_suffice=True)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    "keys", [{"target_encoding": ["number"]}, {"count_encoding": [3]}, {"numeric": ["item_count"]}]
)
def test_encodings_of_other_columns_are_refused(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame, keys: dict[str, Any]
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError):
        ingest_file(tmp_path / "log.parquet", {**SCHEMA, **keys})
