"""Several labels a row, and weights of rows: what is read, set aside and refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shunter.engine.data.dataset import SPLITS, Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.errors import DataError
from shunter.ingestion.schema import Schema
from tests.ingestion.conftest import Ingest
from tests.ingestion.sources.test_tabular import quarantined

IngestLog = Callable[[pl.DataFrame, dict[str, Any]], Dataset]
LABELS = [{"name": "click", "column": "click"}, {"name": "buy", "column": "spent", "positive_at_least": 5}]


@pytest.fixture
def purchases(clicks: pl.DataFrame) -> pl.DataFrame:
    """Clicks with what was spent after some of them, in order of `number`, and a weight."""
    rows = range(200)
    return clicks.with_columns(
        pl.Series("spent", [None if row % 4 == 1 else float(row % 13) for row in rows]),
        pl.Series("weight", [row % 5 / 2 for row in rows]),
        pl.Series("number", [float(row) for row in rows]),
    )


@pytest.fixture
def schema(clicks_schema: dict[str, Any]) -> dict[str, Any]:
    """Both labels and the weights; `number` tells the rows apart."""
    del clicks_schema["label"]
    return {**clicks_schema, "numeric": ["number"], "labels": LABELS, "weight": "weight"}


@pytest.fixture
def ingest_log(tmp_path: Path, ingest_file: Ingest) -> IngestLog:
    """Ingest a frame."""

    def ingest(frame: pl.DataFrame, schema: dict[str, Any]) -> Dataset:
        frame.write_parquet(tmp_path / "log.parquet")
        return ingest_file(tmp_path / "log.parquet", schema)[0]

    return ingest


def stored(dataset: Dataset, name: str) -> np.ndarray:
    return np.concatenate([np.load(dataset.directory / f"{split}.{name}.npy") for split in SPLITS])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_labels_and_weights_stay_beside_their_rows(
    tmp_path: Path, purchases: pl.DataFrame, schema: dict[str, Any], ingest_file: Ingest, suffix: str
) -> None:
    path = tmp_path / f"log.{suffix}"
    getattr(purchases, f"write_{suffix}")(path)
    dataset, _ = ingest_file(path, schema)
    order = np.argsort(stored(dataset, "dense")[:, 0])
    expected = np.array([[row % 3 == 0, np.nan if row % 4 == 1 else row % 13 >= 5] for row in range(200)])
    np.testing.assert_array_equal(stored(dataset, "label")[order], expected.astype(np.float32))
    np.testing.assert_array_equal(stored(dataset, "weight")[order], np.arange(200) % 5 / 2)
    assert dataset.features.tasks == ("click", "buy")
    assert dataset.is_weighted
    assert dataset == Dataset.load(dataset.directory)
    for split, part in dataset.splits.items():
        labels, weights = (np.load(dataset.directory / f"{split}.{name}.npy") for name in ("label", "weight"))
        [buy] = part.others
        assert part.positives == labels[:, 0].sum()
        assert (buy.rows, buy.positives) == (
            (~np.isnan(labels[:, 1]) & (weights > 0)).sum(),
            ((labels[:, 1] == 1) & (weights > 0)).sum(),
        )
    batch = BatchLoader(dataset, "train", 16).read(slice(0, 16))
    assert batch.labels.shape == (16, 2)
    assert batch.shares is not None
    assert batch.shares.sum(0).tolist() == pytest.approx([1, 1])


def test_rows_whose_weight_or_labels_cannot_be_read_are_set_aside(
    tmp_path: Path, purchases: pl.DataFrame, schema: dict[str, Any], ingest_file: Ingest
) -> None:
    texts = purchases.with_columns(pl.col("weight", "spent", "click").cast(pl.String))
    for row, column, text in (
        (3, "weight", "-1"),
        (5, "weight", "nan"),
        (7, "weight", None),
        (9, "weight", "1e300"),
        (11, "weight", "heavy"),
        (13, "spent", "much"),
        (15, "click", None),
        (17, "spent", "inf"),
    ):
        texts[row, column] = text
    texts.write_csv(tmp_path / "log.csv")
    dataset, report = ingest_file(tmp_path / "log.csv", schema, max_bad_share=0.1)
    assert report.quarantined_rows == 8
    found = quarantined(dataset)
    assert [line for line, _ in found] == [row + 2 for row in (3, 5, 7, 9, 11, 13, 15, 17)]
    assert found[0][1] == "weight is '-1', expected a finite number of at least 0"
    assert all("a finite number of at least 0" in reason for _, reason in found[:5])
    assert found[5][1].startswith("spent is 'much', expected a number")
    assert found[6][1].startswith("click is missing")


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("weight", ([0.0] * 200, "gives the weight 0 to all rows in the train part of log")),
        ("weight", ([float(row % 3 == 0) for row in range(200)], "all rows with the label 0 in the train part")),
        ("spent", ([None] * 200, "no label of buy")),
        ("spent", ([9.0] * 200, "only the label 1 of buy")),
    ],
)
def test_what_leaves_nothing_to_learn_is_refused(
    purchases: pl.DataFrame, schema: dict[str, Any], ingest_log: IngestLog, column: str, change: tuple[list[float], str]
) -> None:
    values, message = change
    with pytest.raises(DataError, match=message):
        ingest_log(purchases.with_columns(pl.Series(column, values, pl.Float64)), schema)


def test_two_labels_may_be_two_thresholds_of_one_column(
    purchases: pl.DataFrame, schema: dict[str, Any], ingest_log: IngestLog
) -> None:
    labels = [{"name": f"above{limit}", "column": "spent", "positive_at_least": limit} for limit in (2, 8)]
    found = stored(
        ingest_log(purchases.with_columns(pl.col("spent").fill_null(0)), {**schema, "labels": labels}), "label"
    )
    assert (found[:, 0] >= found[:, 1]).all()
    assert (found[:, 0] > found[:, 1]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "spent"}, "has both `label` and `labels`"),
        ({"labels": ["click", "click"]}, "have the same name: click"),
        ({"labels": ["click", "a b"]}, "'a b' needs a `name` of letters"),
        ({"labels": ["click", {"column": "spent", "name": "a b"}]}, "name in entry 2 of labels is 'a b'"),
        ({"labels": ["click", "user"]}, "listed twice in the schema: user"),
        ({"weight": "click"}, "listed twice in the schema: click"),
        ({"weight": "user"}, "listed twice in the schema: user"),
        ({"weight": "when", "time": "when"}, "the column of weights cannot be the time"),
        ({"labels": []}, "label"),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(
    purchases: pl.DataFrame, schema: dict[str, Any], ingest_log: IngestLog, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        ingest_log(purchases, {**schema, **change})


def test_a_single_label_is_written_as_ever(clicks_schema: dict[str, Any]) -> None:
    plain = Schema.model_validate(clicks_schema)
    alone = {**clicks_schema, "labels": ["click"]}
    del alone["label"]
    assert Schema.model_validate(alone) == plain
    assert not {"labels", "weight"} & plain.model_dump().keys()
    assert "name" not in plain.model_dump()["label"]
    assert plain.tasks == ()
    several = Schema.model_validate({**alone, "labels": LABELS})
    assert Schema.model_validate(several.model_dump()) == several
