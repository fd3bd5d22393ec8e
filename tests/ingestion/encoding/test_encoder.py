"""Serving encodes as ingestion did."""

import shutil
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError
from shunter.ingestion.encoding.columns import bags, from_pandas, hexadecimal_keys, text_keys
from shunter.ingestion.encoding.encoded import EncodedRows
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sources.criteo import CATEGORICAL, NUMERIC
from tests.ingestion.conftest import Ingest


def assert_same_rows(dataset: Dataset, split: str, encoded: EncodedRows) -> None:
    def load(name: str) -> np.ndarray:
        return np.load(dataset.directory / f"{split}.{name}.npy")

    assert len(encoded.dense) == dataset.splits[split].rows
    if dataset.features.dense:
        assert np.array_equal(encoded.dense, load("dense"))
    assert np.array_equal(encoded.categorical, load("categorical"))
    multi = [index for index, feature in enumerate(dataset.features.categorical) if feature.multi_valued]
    for index, bag in zip(multi, encoded.bags, strict=True):
        assert np.array_equal(bag.values, load(f"bag{index}.values"))
        assert np.array_equal(bag.offsets, load(f"bag{index}.offsets"))
        if bag.weights is not None:
            assert np.array_equal(bag.weights, load(f"bag{index}.weights"))


def test_criteo_frame_is_encoded_like_the_log(criteo_file: Path, ingest_file: Ingest) -> None:
    dataset, _ = ingest_file(criteo_file)
    names = ["label", *NUMERIC, *CATEGORICAL]
    texts: Any = dict.fromkeys(CATEGORICAL, "str")
    frame = pd.read_csv(criteo_file, sep="\t", header=None, names=names, dtype=texts)

    encoded = Encoder.load(dataset.directory / "encoder").encode(frame.drop(columns="label"))

    # The split is by hash, so rows are compared as multisets of all parts.
    stored = np.concatenate(
        [
            np.hstack([np.load(dataset.directory / f"{split}.{name}.npy") for name in ("dense", "categorical")])
            for split in dataset.splits
        ]
    )
    found = np.hstack([encoded.dense, encoded.categorical])
    assert np.array_equal(stored[np.lexsort(stored.T)], found[np.lexsort(found.T)])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_frame_is_encoded_like_the_file(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest, form: str
) -> None:
    path = tmp_path / f"clicks.{form}"
    (clicks.write_csv if form == "csv" else clicks.write_parquet)(path)
    dataset, _ = ingest_file(path, {**clicks_schema, "time": "when"})
    # A copy far from the data set: the encoder needs nothing else.
    shutil.copytree(dataset.directory / "encoder", tmp_path / "model" / "encoder")
    encoder = Encoder.load(tmp_path / "model" / "encoder")

    frame = (pd.read_csv if form == "csv" else pd.read_parquet)(path)
    cut = sorted(frame["when"])[160]

    assert_same_rows(dataset, "train", encoder.encode(frame.query(f"when < {cut}")))
    assert encoder.features == dataset.features


@pytest.fixture
def encoder(tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest) -> Encoder:
    clicks.write_parquet(tmp_path / "clicks.parquet")
    hashed = {"column": "shop", "hash_size": 11}
    schema = {**clicks_schema, "categorical": ["user", hashed]}
    dataset, _ = ingest_file(tmp_path / "clicks.parquet", schema)
    return Encoder.load(dataset.directory / "encoder")


def frame_of(**columns: list[Any]) -> pd.DataFrame:
    size = len(next(iter(columns.values())))
    default = {"price": [1.0] * size, "user": [1] * size, "shop": ["north"] * size, "tags": ["new"] * size}
    return pd.DataFrame({**default, **columns})


def test_unknown_and_missing_values_get_id_zero(encoder: Encoder) -> None:
    rows = encoder.encode(frame_of(user=["nobody", None, 3, "3", " 3 "], tags=["blue|blau", "", None, "|new|", "new"]))

    assert rows.categorical[:2, 0].tolist() == [0, 0]
    assert len(set(rows.categorical[2:, 0].tolist())) == 1
    assert rows.categorical[2, 0] > 0
    values, offsets, *_ = rows.bags[0]
    assert offsets.tolist() == [0, 2, 2, 2, 3, 4]
    assert values[1] == 0
    assert values[2] == values[3] > 0


def test_hashed_values_keep_their_id_and_missing_is_zero(encoder: Encoder) -> None:
    shops = encoder.encode(frame_of(shop=["north", "south", None, "unheard of", "north"])).categorical[:, 1]

    assert shops[0] == shops[4]
    assert shops[2] == 0
    assert set(shops[[0, 1, 3]].tolist()) <= set(range(1, 12))


def test_unreadable_number_counts_as_missing(encoder: Encoder) -> None:
    dense = encoder.encode(frame_of(price=["much", None, 7])).dense[:, 0]

    assert dense[:2].tolist() == [0, 0]
    assert dense[2] != 0


def test_order_extra_columns_and_index_do_not_matter(encoder: Encoder) -> None:
    frame = frame_of(user=[1, 2, 3], shop=["north", "south", None])
    shuffled = frame.assign(other="x", click=1).filter(["other", "tags", "shop", "click", "user", "price"])
    shuffled.index = pd.Index([9, 9, 4])

    one, other = encoder.encode(frame), encoder.encode(shuffled)

    assert np.array_equal(one.categorical, other.categorical)
    assert np.array_equal(one.dense, other.dense)


def test_empty_frame_gives_empty_arrays(encoder: Encoder) -> None:
    rows = encoder.encode(frame_of(user=[]))

    assert (rows.dense.shape, rows.categorical.shape) == ((0, 1), (0, 2))
    assert rows.bags[0][1].tolist() == [0]


def test_missing_columns_are_named(encoder: Encoder) -> None:
    with pytest.raises(DataError, match="lacks the columns shop, tags"):
        encoder.encode(frame_of(user=[1]).drop(columns=["tags", "shop"]))


def test_folder_without_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no readable encoder"):
        Encoder.load(tmp_path)


@given(st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=20))
def test_a_number_is_one_value_however_it_is_written(numbers: list[int]) -> None:
    expected = text_keys(pl.Series(numbers)).tolist()

    assert len(set(expected)) == len(set(numbers))
    for written in (
        pl.Series([float(number) for number in numbers]),
        pl.Series([str(number) for number in numbers]),
        pl.Series([f" {number}.0" for number in numbers]),
        from_pandas(pd.Series(numbers, dtype=object)),
        from_pandas(pd.Series([str(number) for number in numbers], dtype="category")),
    ):
        assert text_keys(written).tolist() == expected


@given(st.lists(st.one_of(st.none(), st.text("abéß-😀 \t\n", max_size=4)), max_size=20))
def test_keys_tell_texts_apart(texts: list[str | None]) -> None:
    keys = text_keys(pl.Series(texts, dtype=pl.String)).tolist()
    meaning = [(text or "").strip() or None for text in texts]

    for one, key in zip(meaning, keys, strict=True):
        assert (one is None) == (key == 0)
        assert [other == one for other in meaning] == [other == key for other in keys]


@pytest.mark.parametrize(
    "series",
    [
        pl.Series([["a", "b"], [], None, ["b", None]]),
        pl.Series(["a|b", "", None, "b||"]),
        from_pandas(pd.Series([np.array(["a", "b"]), [], None, ["b"]], dtype=object)),
    ],
)
def test_bags_however_they_are_held(series: pl.Series) -> None:
    bag = bags(series, "|")
    a, b = text_keys(pl.Series(["a", "b"]))

    assert bag.keys.tolist() == [a, b, b]
    assert bag.offsets.tolist() == [0, 2, 2, 2, 3]


def test_bags_of_single_values_and_of_nothing() -> None:
    fixed = pl.Series([["a", "b"], ["b", "a"]], dtype=pl.Array(pl.String, 2))

    assert bags(fixed, None).offsets.tolist() == [0, 2, 4]
    assert bags(pl.Series([7, None, 8]), None).offsets.tolist() == [0, 1, 1, 2]
    assert bags(pl.Series(["a b", None]), None).keys.tolist() == text_keys(pl.Series(["a b"])).tolist()
    assert bags(pl.Series([None, None]), "|").offsets.tolist() == [0, 0, 0]


def test_other_types_become_keys_by_their_text() -> None:
    assert text_keys(pl.Series([True, False, None])).tolist() == text_keys(pl.Series(["true", "false", ""])).tolist()
    assert text_keys(pl.Series([date(2024, 2, 29)])) == text_keys(pl.Series(["2024-02-29"]))
    assert text_keys(pl.Series([1.5, float("nan"), 1e300])).tolist()[1] == 0
    # SipHash does not change, so that a registered model can be read by later versions.
    assert text_keys(pl.Series(["shunter"])).tolist() == [18355344892540604500]
    assert hexadecimal_keys(pl.Series(["0000000a", "zz", None, "FF"])).tolist() == [11, 0, 0, 256]
