"""Crosses of columns: the values of several columns together are one value."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shunter.errors import DataError
from shunter.ingestion.encoding.encoder import Encoder
from shunter.serving.few_values import ValueEncoder
from tests.ingestion.conftest import Ingest


@pytest.fixture
def schema(clicks_schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of `clicks`, with a cross of two columns, one of which is read for the cross alone."""
    cross = {"column": "user_in_shop", "cross": ["user", "shop"], "min_count": 1}
    return {**clicks_schema, "categorical": ["user", cross]}


def test_each_pair_of_values_has_an_id_and_pairs_with_a_missing_value_have_none(
    tmp_path: Path, ingest_file: Ingest, clicks: pl.DataFrame, schema: dict[str, Any]
) -> None:
    clicks.write_parquet(tmp_path / "log.parquet")
    dataset, _ = ingest_file(tmp_path / "log.parquet", schema)
    encoder = Encoder.load(dataset.directory / "encoder")
    assert encoder.columns == ("price", "user", "shop", "tags")
    rows = encoder.encode_table(clicks.to_dict(), len(clicks))
    ids = rows.categorical[:, 1]
    pairs = pl.DataFrame({"user": clicks["user"], "shop": clicks["shop"], "id": ids})
    known = pairs.filter(pl.col("shop").is_not_null() & (pl.col("id") > 0))
    assert known.n_unique("id") == known.n_unique(["user", "shop"]) == known.n_unique() > 10
    assert not ids[clicks["shop"].is_null().to_numpy()].any()
    few = encoder.encode(clicks[:7].to_pandas())
    assert np.array_equal(few.categorical, rows.categorical[:7])
    lists = {name: clicks[name].to_list() for name in encoder.columns}
    assert ValueEncoder(encoder).encode(lists, len(clicks)) is None
    stored = np.load(dataset.directory / "train.categorical.npy")
    assert set(stored[:, 1]) <= set(ids)
    [cross] = [field for field in dataset.fields if field.name == "user_in_shop"]
    assert cross.cardinality == known.n_unique("id")


def test_a_cross_moves_no_row_to_another_part(
    tmp_path: Path, ingest_file: Ingest, clicks: pl.DataFrame, schema: dict[str, Any]
) -> None:
    clicks.write_parquet(tmp_path / "log.parquet")
    without = {**schema, "categorical": ["user", "shop"]}
    parts = [
        ingest_file(tmp_path / "log.parquet", {**one, "categorical": [*one["categorical"], *more]})[0].splits
        for one, more in ((without, []), (without, schema["categorical"][1:]))
    ]
    assert parts[0] == parts[1]


@pytest.mark.parametrize(
    "cross",
    [
        {"column": "c", "cross": ["user"]},
        {"column": "c", "cross": ["user", "user"]},
        {"column": "user", "cross": ["user", "shop"]},
        {"column": "c", "cross": ["user", "click"]},
        {"column": "c", "cross": ["user", "tags"]},
        {"column": "c", "cross": ["user", "shop"], "buckets": 3},
    ],
)
def test_crosses_without_meaning_are_refused(
    tmp_path: Path, ingest_file: Ingest, clicks: pl.DataFrame, clicks_schema: dict[str, Any], cross: dict[str, Any]
) -> None:
    clicks.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError):
        ingest_file(tmp_path / "log.parquet", {**clicks_schema, "categorical": ["shop", cross]})
