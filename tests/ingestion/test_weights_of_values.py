"""Weights of single values: from two columns of a log to the arrays, and the same for rows that are scored."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from shunter.engine.data.loader import BatchLoader
from shunter.errors import DataError
from shunter.ingestion.encoding.columns import weighted_bags
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.schema import parse_schema
from tests.ingestion.conftest import Ingest
from tests.ingestion.encoding.test_encoder import assert_same_rows

BAG: dict[str, Any] = {"column": "tags", "separator": "|", "weights": "shares"}


@pytest.fixture
def schema(clicks_schema: dict[str, Any]) -> dict[str, Any]:
    return {**clicks_schema, "multi_valued": [BAG], "time": "when"}


@pytest.fixture
def weighted(clicks: pl.DataFrame) -> pl.DataFrame:
    """The clicks with a weight for each tag, and none where there is no tag."""
    tags = [text.split("|") if text else [] for text in clicks["tags"]]
    shares = ["|".join(str((row + place) / 8 - 1) for place in range(len(own))) for row, own in enumerate(tags)]
    return clicks.with_columns(pl.Series("shares", shares))


@pytest.mark.parametrize("form", ["csv", "parquet", "lists"])
def test_frame_and_file_have_the_same_weights(
    tmp_path: Path, weighted: pl.DataFrame, schema: dict[str, Any], ingest_file: Ingest, form: str
) -> None:
    path = tmp_path / f"clicks.{'csv' if form == 'csv' else 'parquet'}"
    if form == "lists":
        numbers = [[float(one) for one in text.split("|") if one] for text in weighted["shares"]]
        tags = [[tag for tag in text.split("|") if tag] for text in weighted["tags"]]
        weighted = weighted.with_columns(pl.Series("shares", numbers), pl.Series("tags", tags))
    (weighted.write_csv if form == "csv" else weighted.write_parquet)(path)
    dataset, report = ingest_file(path, schema)
    encoder = Encoder.load(dataset.directory / "encoder")
    frame = (pd.read_csv if form == "csv" else pd.read_parquet)(path)
    cut = sorted(frame["when"])[160]

    assert report.quarantined_rows == 0
    assert [field.weights for field in dataset.features.categorical] == [None, None, "shares"]
    assert encoder.features == dataset.features
    assert "shares" in encoder.columns
    assert_same_rows(dataset, "train", encoder.encode(frame.query(f"when < {cut}")))


def test_batches_bring_each_id_its_weight(
    tmp_path: Path, weighted: pl.DataFrame, schema: dict[str, Any], ingest_file: Ingest
) -> None:
    weighted.write_parquet(tmp_path / "clicks.parquet")
    dataset, _ = ingest_file(tmp_path / "clicks.parquet", schema)
    whole = np.load(dataset.directory / "train.bag2.weights.npy")
    offsets = np.load(dataset.directory / "train.bag2.offsets.npy")
    loader = BatchLoader(dataset, "train", 64, shuffle=True)
    for rows in loader.rows_of_batches():
        batch = loader.read(rows)
        assert batch.weights is not None
        assert isinstance(rows, np.ndarray)
        own = [whole[offsets[row] : offsets[row + 1]] for row in rows]
        assert batch.weights.tolist() == np.concatenate([np.ones(2 * len(rows), np.float32), *own]).tolist()
        assert len(batch.inputs) == 4


BAD = {
    "one too few": ("new|sale", "1"),
    "one too many": ("new", "1|2"),
    "none": ("new", ""),
    "missing": ("new", None),
    "a word": ("new|sale", "1|much"),
    "an empty one": ("new|sale", "1|"),
    "infinite": ("new", "inf"),
    "too large": ("new", "1e300"),
    "not a number": ("new", "nan"),
}


@pytest.mark.parametrize(("tags", "shares"), BAD.values(), ids=BAD)
def test_other_weights_than_one_number_for_each_value_are_refused(
    tmp_path: Path,
    weighted: pl.DataFrame,
    schema: dict[str, Any],
    ingest_file: Ingest,
    *,
    tags: str,
    shares: str | None,
) -> None:
    bad = weighted.head(1).with_columns(pl.Series("tags", [tags]), pl.Series("shares", [shares], pl.String))
    path = tmp_path / "clicks.parquet"
    pl.concat([weighted, bad]).write_parquet(path)
    dataset, report = ingest_file(path, schema)

    assert report.quarantined_rows == 1
    assert "expected a finite number for each value of tags" in (dataset.directory / "quarantine.csv").read_text()
    encoder = Encoder.load(dataset.directory / "encoder")
    with pytest.raises(DataError, match="The column shares of weights has a missing or non-finite number in row 0"):
        encoder.encode(bad.to_pandas())


def test_values_that_are_none_take_their_weights_with_them() -> None:
    bag, bad = weighted_bags(pl.Series(["a||b", "", None]), pl.Series(["1|x|3", "", None]), "|")

    assert bag.weights is not None
    assert bag.weights.tolist() == [1, 3]
    assert bag.offsets.tolist() == [0, 2, 2, 2]
    assert not bad.any()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("multi_valued: [{column: tags, weights: tags}]", "must be in another column"),
        ("multi_valued: [{column: tags, weights: click}]", "listed twice in the schema: click"),
        ("sequences: [{column: tags, weights: shares}]", "a history, which cannot have weights"),
    ],
)
def test_weights_that_cannot_be_are_refused(wrong: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        parse_schema(f"{{label: click, categorical: [user], {wrong}}}")
