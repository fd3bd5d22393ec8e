"""Logs whose files add, drop or change columns."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError
from shunter.ingestion.check import check
from shunter.ingestion.encoding.encoder import Encoder
from tests.ingestion.conftest import Ingest

SCHEMA: dict[str, Any] = {"label": "click", "numeric": ["price"], "categorical": ["user"]}


def day(number: int, **columns: pl.Expr) -> pl.DataFrame:
    rows = pl.DataFrame({"click": [row % 2 for row in range(100)], "user": [row % 7 for row in range(100)]})
    return rows.with_columns(price=pl.int_range(100) + number).with_columns(**columns)


def write(days: list[pl.DataFrame], folder: Path, suffix: str) -> Path:
    folder.mkdir()
    for number, rows in enumerate(days):
        path = folder / f"{number}.{suffix}"
        rows.write_parquet(path) if suffix == "parquet" else rows.write_csv(path, separator=";")
    return folder


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_column_that_some_files_lack_is_missing_there_and_told(
    tmp_path: Path, ingest_file: Ingest, suffix: str
) -> None:
    days = [day(0), day(1).drop("price"), day(2).with_columns(new=pl.lit(1))]
    folder = write(days, tmp_path / "days", suffix)
    dataset, _ = ingest_file(folder, SCHEMA)
    assert dataset.rows == 300
    [price] = [field for field in dataset.fields if field.name == "price"]
    assert price.missing_share == pytest.approx(1 / 3, abs=0.1)
    assert [*Dataset.load(dataset.directory).varying_columns] == ["price"]
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    found = check(str(folder), schema_file=str(tmp_path / "schema.yaml")).findings
    assert [finding.column for finding in found if finding.kind.startswith("column")] == ["price"]


def test_a_file_without_the_user_of_a_split_is_refused(tmp_path: Path, ingest_file: Ingest) -> None:
    folder = write([day(0), day(1).drop("user")], tmp_path / "days", "parquet")
    schema = {**SCHEMA, "user": "user", "time": "price", "split": {"per_user": "shares"}, "numeric": []}
    with pytest.raises(DataError):
        ingest_file(folder, schema)


def test_a_value_keeps_its_id_where_its_type_changes(tmp_path: Path, ingest_file: Ingest) -> None:
    days = [
        day(0),
        day(1, user=pl.col("user").cast(pl.Float64)),
        day(2, user=pl.col("user").cast(pl.String).cast(pl.Categorical)),
        day(3, user=pl.col("user").cast(pl.String).cast(pl.Enum([*"9876543210"]))),
    ]
    dataset, _ = ingest_file(write(days, tmp_path / "days", "parquet"), SCHEMA)
    assert dataset.varying_columns == {"user": ("number", "text")}
    encoder = Encoder.load(dataset.directory / "encoder")
    ids = [encoder.encode_table(rows.to_dict(), 100).categorical for rows in days]
    assert all(np.array_equal(ids[0], one) for one in ids)
    assert len(np.unique(ids[0])) == 7


@pytest.mark.parametrize("column", ["click", "price"])
def test_a_log_whose_files_all_lack_a_feature_or_one_of_which_lacks_the_label_is_refused(
    tmp_path: Path, ingest_file: Ingest, column: str
) -> None:
    days = [day(0).drop("price"), day(1).drop(column)]
    with pytest.raises(DataError):
        ingest_file(write(days, tmp_path / "days", "parquet"), SCHEMA)
