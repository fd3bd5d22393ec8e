"""Numbers as ids: cut where the training rows say, by ingestion and by serving alike."""

from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import DataError
from shunter.ingestion.encoding.buckets import BucketIds, coarse, number_keys, numbers_of_keys, quantile_edges
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.shared_rows import shared_rows
from shunter.ingestion.encoding.vocabulary import count_keys
from shunter.ingestion.names import value_names
from shunter.ingestion.schema import Schema, read_schema
from shunter.ingestion.sources.criteo import NUMERIC
from shunter.ingestion.sources.open import open_source
from tests.ingestion.conftest import Ingest
from tests.ingestion.encoding.test_encoder import assert_same_rows

NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(NUMBERS, min_size=2))
def test_keys_have_the_order_of_the_numbers(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32)

    assert np.array_equal(numbers_of_keys(number_keys(values)), values)
    assert np.array_equal(np.argsort(number_keys(np.sort(values)), kind="stable"), np.arange(len(values)))
    lowest = numbers_of_keys(coarse(number_keys(values)))
    assert (lowest <= values).all()
    whole = np.arange(-100_000, 100_000, 777, dtype=np.float32)
    assert np.array_equal(numbers_of_keys(coarse(number_keys(whole))), np.where(whole < 0, lowest_of(whole), whole))
    assert np.isnan(numbers_of_keys(coarse(number_keys(np.array([np.nan])))))


def lowest_of(negative: np.ndarray) -> np.ndarray:
    """The least number of the cell of each negative one, found by stepping down the floats."""
    steps = negative.astype(np.float32).view(np.uint32) | np.uint32(127)
    return steps.view(np.float32)


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(2, 12))
def test_quantile_edges_against_sorting(values: list[int], buckets: int) -> None:
    """An edge is the next value behind the one at a quantile: each bucket but one of a frequent value is as full."""
    ordered = sorted(values)
    distinct = sorted(set(values))
    wanted: set[int] = set()
    for number in range(1, buckets):
        share = number * len(values) / buckets
        at = next(value for value in ordered if bisect_right(ordered, value) >= share)
        wanted.update([value for value in distinct if value > at][:1])

    edges = quantile_edges(*count_keys(coarse(number_keys(np.array(values, np.float32)))), buckets)

    assert edges == tuple(sorted(wanted))
    ids = BucketIds(edges).ids(number_keys(np.array([*values, np.nan])))
    assert ids[:-1].tolist() == [1 + sum(value >= edge for edge in edges) for value in values]
    assert ids[-1] == 0


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_serving_cuts_as_ingestion_did(tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest, form: str) -> None:
    path = tmp_path / f"clicks.{form}"
    clicks.write_csv(path) if form == "csv" else clicks.write_parquet(path)
    schema: dict[str, Any] = {
        "label": "click",
        "numeric": [{"column": "price", "buckets": 4, "beside": True}, {"column": "user", "buckets": [2, 5]}],
        "categorical": "shop",
        "time": "when",
    }

    dataset, _ = ingest_file(path, schema)

    encoder = Encoder.load(dataset.directory / "encoder")
    assert encoder.columns == ("price", "shop", "user")
    rows = {field.name: field.rows for field in dataset.features.categorical}
    assert rows == {"shop": 3, "price_bucket": 5, "user": 4}
    assert dataset.features.dense == ("price",)
    price = next(field for field in encoder.categorical if field.name == "price_bucket")
    assert isinstance(price.ids, BucketIds)
    training = np.load(dataset.directory / "train.categorical.npy")[:, 1]
    assert np.bincount(training)[1:].min() >= 0.8 * np.bincount(training)[1:].max()
    whole = encoder.encode(clicks.to_pandas())
    test_from = clicks["when"].sort()[-dataset.splits["test"].rows]
    assert_same_rows(dataset, "test", whole.select((clicks["when"] >= test_from).to_numpy()))
    user = whole.categorical[:, 2].tolist()
    assert user == [1 + (value >= 2) + (value >= 5) for value in clicks["user"]]
    cut = value_names(open_source(str(path), None, str(tmp_path / "schema.yaml"), tmp_path), encoder, {"user": [0, 2]})
    assert cut == {"user": {2: "2 to 5"}}


def test_a_former_encoder_keeps_its_edges(tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest) -> None:
    clicks.write_parquet(tmp_path / "clicks.parquet")
    schema = {"label": "click", "numeric": {"column": "price", "buckets": 4}}
    dataset, _ = ingest_file(tmp_path / "clicks.parquet", schema)
    other, _ = ingest_file(tmp_path / "clicks.parquet", schema | {"numeric": {"column": "price", "buckets": 3}})
    first, second = (Encoder.load(each.directory / "encoder") for each in (dataset, other))

    assert first.digest() != second.digest()
    assert len(shared_rows(first, first)["price"].now) == first.categorical[0].ids.rows
    assert len(shared_rows(first, second)["price"].now) == 1


def test_every_number_of_a_criteo_log(tmp_path: Path, criteo_file: Path, ingest_file: Ingest) -> None:
    plain, _ = ingest_file(criteo_file)
    cut, _ = ingest_file(criteo_file, {"buckets": 8})

    assert cut.features.dense == plain.features.dense
    assert cut.features.categorical[: len(plain.features.categorical)] == plain.features.categorical
    added = cut.features.categorical[len(plain.features.categorical) :]
    assert [field.name for field in added] == [f"{name}_bucket" for name in NUMERIC]
    assert all(2 <= field.rows <= 9 for field in added)


@pytest.mark.parametrize(
    ("numeric", "fault"),
    [
        ({"column": "price", "buckets": 1}, "2 to 65,536 buckets"),
        ({"column": "price", "buckets": [3, 2]}, "ascending order"),
        ({"column": "price", "buckets": [1, float("inf")]}, "ascending order"),
        ({"column": "price"}, "has buckets"),
        ([{"column": "price", "buckets": 3}, "price"], "listed twice in the schema: price"),
    ],
)
def test_faults_are_one_sentence(tmp_path: Path, numeric: Any, fault: str) -> None:
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"label": "click", "numeric": numeric}))
    with pytest.raises(DataError, match=fault):
        read_schema(tmp_path / "schema.yaml", Schema)
