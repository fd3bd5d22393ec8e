"""Learned maps in ingestion: of the training rows alone, the same from the same rows, in data sets and encoders."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError
from shunter.extensions.learned_hashing.learned_ids import LearnedIds
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.schema import Schema, read_schema
from shunter.ingestion.sources.days import DaysSource, open_day
from shunter.ingestion.sources.tabular import CsvSource
from tests.ingestion.conftest import Ingest

ITEMS = 60
SCHEMA: dict[str, Any] = {
    "label": "click",
    "categorical": ["user", {"column": "item", "learned_rows": 23}],
    "multi_valued": [{"column": "tags", "separator": "|", "learned_rows": 6}],
    "part": "part",
}


def clicks(seed: int, rows: int = 4_000) -> pl.DataFrame:
    """Items of an even number are liked by users of an even number, and those of an odd one by the others."""
    random = np.random.default_rng(seed)
    item, user = np.minimum(random.zipf(1.3, rows), ITEMS), random.integers(0, 10, rows)
    return pl.DataFrame(
        {
            "click": (random.random(rows) < np.where((item + user) % 2 == 0, 0.9, 0.1)).astype(int),
            "item": [f"item {number}" for number in item],
            "user": user,
            "tags": ["|".join(f"tag {tag}" for tag in random.integers(0, 9, number % 3)) for number in item],
            "part": np.resize(["train"] * 8 + ["validation", "test"], rows),
        }
    )


@pytest.fixture
def learned(tmp_path: Path, ingest_file: Ingest) -> tuple[Dataset, Encoder]:
    """A log with its map."""
    clicks(0).write_parquet(tmp_path / "log.parquet")
    dataset, _ = ingest_file(tmp_path / "log.parquet", SCHEMA)
    return dataset, Encoder.load(dataset.directory / "encoder")


def map_of(encoder: Encoder, name: str) -> LearnedIds:
    ids = next(field.ids for field in encoder.categorical if field.name == name)
    assert isinstance(ids, LearnedIds)
    return ids


def test_values_that_behave_alike_share_a_row(learned: tuple[Dataset, Encoder]) -> None:
    dataset, encoder = learned
    ids = map_of(encoder, "item")
    assert (ids.own, ids.shared, ids.hashed) == (10, 10, 3)
    assert {field.name: field.rows for field in dataset.features.categorical} == {"user": 11, "item": 24, "tags": 7}
    frame = clicks(0)
    encoded = encoder.encode(frame.to_pandas())
    assert np.array_equal(encoded.categorical[::10], np.load(dataset.directory / "train.categorical.npy")[::8])
    row, parity = pl.col("row"), pl.col("item").str.strip_prefix("item ").cast(pl.Int64) % 2
    known = frame.with_columns(row=encoded.categorical[:, 1]).filter(row > ids.own, row <= ids.own + ids.shared)
    together = known.unique("item").group_by("row").agg(odd=parity.mean(), values=pl.len())
    assert (together["values"] > 1).sum() >= 5
    alike = np.maximum(together["odd"], 1 - together["odd"])
    assert np.average(alike, weights=together["values"]) > 0.85
    curve = next(field for field in dataset.fields if field.name == "item").access_curve
    assert len(curve) > 3
    assert curve[-1] == (1, 1)


def test_same_training_rows_give_the_same_bytes_whatever_is_in_the_others(tmp_path: Path, ingest_file: Ingest) -> None:
    folders = []
    for number, change in enumerate((pl.col("click"), 1 - pl.col("click"))):
        path = tmp_path / f"log{number}.parquet"
        click = pl.when(pl.col("part") == "train").then(pl.col("click")).otherwise(change)
        clicks(0).with_columns(click=click).write_parquet(path)
        folders.append(ingest_file(path, SCHEMA)[0].directory)
    assert folders[0] != folders[1]
    for name in ("encoder/encoder.json", "encoder/vocabulary.npz", "train.categorical.npy", "train.bag2.values.npy"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_histories_take_the_map_of_their_items(tmp_path: Path, ingest_file: Ingest) -> None:
    clicks(0).with_columns(when=pl.int_range(pl.len())).write_parquet(tmp_path / "log.parquet")
    schema = {
        "label": "click",
        "categorical": ["user", "item"],
        "sequences": [{"column": "seen", "items": "item", "by": "user", "length": 3}],
        "time": "when",
        "vocabulary": {"learned_rows": 16},
    }
    dataset, _ = ingest_file(tmp_path / "log.parquet", schema)
    encoder = Encoder.load(dataset.directory / "encoder")
    assert map_of(encoder, "seen") is map_of(encoder, "item")
    assert {field.name: field.rows for field in dataset.features.categorical} == {"user": 13, "item": 17, "seen": 17}


def test_a_night_keeps_the_map_of_its_champion_and_hashes_new_values(tmp_path: Path) -> None:
    schema_file = tmp_path / "schema.yaml"
    schema_file.write_text(yaml.safe_dump({key: value for key, value in SCHEMA.items() if key != "part"}))
    days, base, maps = [], None, []
    for number in range(2):
        path = tmp_path / f"{number}.csv"
        frame = clicks(number).with_columns(pl.col("item").str.replace("item 1", f"item {number}-1")).drop("part")
        frame.write_csv(path)
        days.append(open_day(date(2026, 3, 1 + number), [path], None, str(schema_file)))
        dataset, _ = ingest_source(DaysSource("log", tuple(days[-1:]), base=base), tmp_path / "cache", 0, 0.01)
        base = Encoder.load(dataset.directory / "encoder")
        maps.append(map_of(base, "item"))
    assert maps[0].is_same(maps[1])
    [field] = [field for field in base.categorical if field.name == "item"] if base else []
    row = field.ids.ids(np.array([12345], np.uint64))
    assert 1 <= row[0] < field.ids.rows


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"categorical": [{"column": "item", "learned_rows": 9, "hash_size": 9}]}, "hash_size and learned_rows"),
        ({"vocabulary": {"learned_rows": 9, "hash_size": 9}}, "hash_size and learned_rows"),
        ({"categorical": [{"column": "item", "learned_rows": 1}]}, "learned_rows"),
        ({"categorical": [{"column": "item", "learned_rows": 9, "vectors": "v.csv"}]}, "learned_rows would map"),
        ({"categorical": [{"column": "item", "learned_rows": 9, "buckets": 4}]}, "has buckets, which exclude"),
    ],
)
def test_faults_are_one_sentence(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({**SCHEMA, **changes}))
    with pytest.raises(DataError, match=fault):
        read_schema(tmp_path / "schema.yaml", Schema)


def test_models_that_rank_are_refused(tmp_path: Path) -> None:
    clicks(0, rows=100).write_csv(tmp_path / "log.csv")
    source = CsvSource(
        "log", Schema.model_validate({**SCHEMA, "user": "user", "item": "item"}), (tmp_path / "log.csv",)
    )
    with pytest.raises(DataError, match="learned_rows"):
        ingest_source(source, tmp_path / "cache", 0, 0.01, positives_suffice=True)


def test_what_a_column_says_of_its_own_comes_before_what_is_said_of_all() -> None:
    columns = ["a", {"column": "b", "hash_size": 5}, {"column": "c", "learned_rows": 7}, {"column": "d", "buckets": 4}]
    for all_of, rows, hashes in (("learned_rows", [9, None, 7, None], 5), ("hash_size", [None, None, 7, None], 9)):
        values = {"label": "click", "categorical": columns, "vocabulary": {all_of: 9}}
        schema = Schema.model_validate(values)
        assert [schema.vocabulary.learned_rows_of(column) for column in schema.categorical] == rows
        found = [schema.vocabulary.hash_size_of(column) for column in schema.categorical[:3]]
        assert found == [9 if hashes == 9 else None, 5, None]
