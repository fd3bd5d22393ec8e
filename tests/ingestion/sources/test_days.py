"""Several days as one log: the day that is held out, columns that a day lacks, values that stay known."""

from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import Dataset
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.vocabulary import VocabularyIds
from shunter.ingestion.sources.days import DaysSource, open_day

SCHEMA = {
    "label": "click",
    "numeric": ["price"],
    "categorical": ["user"],
    "multi_valued": [{"column": "tags", "separator": "|"}],
}
FIRST, SECOND, THIRD = (date(2026, 5, number) for number in (1, 2, 3))


def clicks(seed: int, rows: int = 300) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "click": random.integers(0, 2, rows),
            "price": random.gamma(2.0, 10.0, rows),
            "user": [f"user {number}" for number in random.integers(0, 20, rows)],
            "tags": [("new", "new|blue", "")[number] for number in random.integers(0, 3, rows)],
        }
    )


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    return str(tmp_path / "schema.yaml")


def write(folder: Path, day: date, frame: pl.DataFrame) -> Path:
    path = folder / f"{day}.parquet"
    frame.write_parquet(path)
    return path


def ingested(source: DaysSource, folder: Path, seed: int = 0) -> Dataset:
    return ingest_source(source, folder / "cache", seed, 0.01)[0]


def labels(dataset: Dataset, split: str) -> list[float]:
    return np.load(dataset.directory / f"{split}.label.npy").tolist()


def test_the_day_held_out_is_the_test_part_in_its_order_and_nothing_else_is(tmp_path: Path, schema_file: str) -> None:
    frames = {day: clicks(seed) for seed, day in enumerate((FIRST, SECOND, THIRD))}
    days = tuple(open_day(day, [write(tmp_path, day, frame)], None, schema_file) for day, frame in frames.items())
    dataset = ingested(DaysSource("log", days, held_out=SECOND), tmp_path)
    assert labels(dataset, "test") == frames[SECOND]["click"].to_list()
    assert dataset.splits["train"].rows + dataset.splits["validation"].rows == 600
    assert 20 < dataset.splits["validation"].rows < 120


def test_validation_rows_of_one_night_are_validation_rows_of_the_next(tmp_path: Path, schema_file: str) -> None:
    logs = {day: [write(tmp_path, day, clicks(seed))] for seed, day in enumerate((FIRST, SECOND, THIRD))}
    opened = {day: open_day(day, paths, None, schema_file) for day, paths in logs.items()}
    one = DaysSource("log", (opened[FIRST], opened[SECOND]), held_out=SECOND)
    two = DaysSource("log", (opened[FIRST], opened[SECOND], opened[THIRD]), held_out=THIRD)
    parts = []
    for source in (one, two):
        batch = source.parse(next(source.chunks()))
        parts.append(source.splitter(seed=3).assign(batch).tolist())
    assert parts[0] == parts[1]
    assert set(parts[0]) == {0, 1}


def test_column_that_a_day_lacks_is_read_as_missing_values(tmp_path: Path, schema_file: str) -> None:
    whole = open_day(FIRST, [write(tmp_path, FIRST, clicks(0))], None, schema_file)
    path = write(tmp_path, SECOND, clicks(1).drop("price", "user", "tags").with_columns(user=pl.lit("user 1")))
    poor = open_day(SECOND, [path], None, schema_file, without=["price", "tags"])
    [batch] = poor.batches()
    assert np.isnan(batch.columns.numeric).all()
    assert batch.columns.bags[0].offsets.tolist() == [0] * 301
    dataset = ingested(DaysSource("log", (whole, poor), held_out=SECOND), tmp_path)
    assert (np.load(dataset.directory / "test.dense.npy") == 0).all()
    assert len(set(np.load(dataset.directory / "test.categorical.npy")[:, 0].tolist())) == 1


def test_values_of_the_base_stay_known_and_numbers_keep_its_scale(tmp_path: Path, schema_file: str) -> None:
    first = open_day(FIRST, [write(tmp_path, FIRST, clicks(0))], None, schema_file)
    shifted = clicks(1).with_columns(user=pl.col("user").str.replace("user 1", "person 1"), price=pl.col("price") * 9)
    second = open_day(SECOND, [write(tmp_path, SECOND, shifted)], None, schema_file)
    base = Encoder.load(ingested(DaysSource("log", (first,)), tmp_path).directory / "encoder")
    extended = Encoder.load(ingested(DaysSource("log", (second,), base=base), tmp_path).directory / "encoder")
    fresh = Encoder.load(ingested(DaysSource("log", (second,)), tmp_path).directory / "encoder")
    assert extended.numeric == base.numeric != fresh.numeric
    keys = [encoder.categorical[0].ids for encoder in (base, fresh, extended)]
    known = [set(ids.keys.tolist()) for ids in keys if isinstance(ids, VocabularyIds)]
    assert known[2] == known[0] | known[1]
    assert known[0] - known[1]
    assert known[1] - known[0]


def test_base_and_held_out_day_decide_about_the_cache(tmp_path: Path, schema_file: str) -> None:
    days = tuple(
        open_day(day, [write(tmp_path, day, clicks(seed))], None, schema_file)
        for seed, day in enumerate((FIRST, SECOND))
    )
    base = Encoder.load(ingested(DaysSource("log", days[:1]), tmp_path).directory / "encoder")
    sources = [DaysSource("log", days, held_out=day) for day in (None, FIRST, SECOND)]
    sources.append(DaysSource("log", days, held_out=SECOND, base=base))
    assert len({ingested(source, tmp_path).fingerprint for source in sources}) == len(sources)
    assert ingest_source(sources[-1], tmp_path / "cache", 0, 0.01)[1].reused
