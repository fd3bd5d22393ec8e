"""Parquet in folders that are partitions, such as `day=2026-03-01`."""

from pathlib import Path

import polars as pl
import pytest

from shunter.ingestion.cache import fingerprint_of, ingest_source
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.open import find_files, open_source
from shunter.ingestion.sources.tabular import ParquetSource

SCHEMA = "label: click\nnumeric: [price]\ncategorical: [user, day, shop]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frame = pl.DataFrame({"click": [0, 1] * 50, "price": range(100), "user": [f"u{n % 7}" for n in range(100)]})
    for day in ("2026-03-01", "2026-03-02", "__HIVE_DEFAULT_PARTITION__"):
        (part := tmp_path / "log" / f"day={day}" / "shop=a%20b").mkdir(parents=True)
        frame.write_parquet(part / "part-0.parquet")
        (part / "_SUCCESS").touch()
    (tmp_path / "log" / "notes").mkdir()
    frame.write_parquet(tmp_path / "log" / "notes" / "other.parquet")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    return tmp_path / "log"


def test_partitions_of_folders_are_columns(folder: Path, tmp_path: Path) -> None:
    source = open_source(str(folder), None, str(tmp_path / "schema.yaml"), tmp_path)
    assert isinstance(source, ParquetSource)
    assert len(source.paths) == 3
    chunks = pl.concat([chunk.table for chunk in source.chunks()])
    assert chunks.height == 300
    assert chunks["shop"].unique().to_list() == ["a b"]
    assert chunks["day"].value_counts().sort("day").rows() == [(None, 100), ("2026-03-01", 100), ("2026-03-02", 100)]
    [only] = source.rows(source.paths[0], ["day"], Budget.of_settings())
    assert only.table.shape == (100, 1)
    dataset, _ = ingest_source(source, tmp_path / "cache", 0, 0.0)
    [day] = [field for field in dataset.fields if field.name == "day"]
    assert day.cardinality == 2


def test_names_of_partitions_belong_to_the_content(folder: Path, tmp_path: Path) -> None:
    def fingerprint() -> str:
        source = open_source(str(folder), None, str(tmp_path / "schema.yaml"), tmp_path)
        return fingerprint_of(source, 0, tmp_path / "memo.json")

    before = fingerprint()
    (folder / "day=2026-03-02").rename(folder / "day=2026-03-03")
    assert fingerprint() != before


def test_globs_choose_partitions(folder: Path) -> None:
    assert len(find_files(f"{folder}/day=2026-03-0*/*/*.parquet")) == 2
