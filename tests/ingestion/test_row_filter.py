"""Rows that the schema leaves out: frequency floors and k-core filtering."""

import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from shunter.errors import DataError
from shunter.ingestion.build import build
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.check import check
from shunter.ingestion.encoding.split import UserTimeSplit
from shunter.ingestion.sources.days import DaysSource, open_day
from shunter.ingestion.sources.open import open_source
from shunter.ingestion.sources.parts import PartsSource
from shunter.ingestion.workers import Work
from tests.ingestion.conftest import Ingest

SCHEMA = {"label": "click", "categorical": ["user", "item"], "user": "user", "item": "item"}


@pytest.fixture
def log() -> pl.DataFrame:
    """2,000 rows whose users and items are rare by a power law, some of them missing."""
    random = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "click": random.integers(0, 2, 2_000),
            "user": [None if one == 5 else int(one) for one in random.zipf(1.5, 2_000) % 400],
            "item": random.zipf(1.3, 2_000) % 500,
            "when": random.integers(0, 10_000, 2_000),
        }
    )


def k_core(log: pl.DataFrame, k: int) -> pl.DataFrame:
    """The k-core by its definition: drop rows until all users and items have k."""
    log = log.drop_nulls("user")
    while True:
        users, items = Counter(log["user"]), Counter(log["item"])
        left = log.filter([users[u] >= k and items[i] >= k for u, i in zip(log["user"], log["item"], strict=True)])
        if len(left) == len(log):
            return left
        log = left


def test_the_k_core_is_what_is_left_and_what_is_left_out_is_counted(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    left = k_core(log, 5)
    dataset, report = ingest_file(tmp_path / "log.parquet", {**SCHEMA, "k_core": 5})
    assert 0 < len(left) == dataset.rows == report.rows < len(log)
    assert dataset.left_out_rows == len(log) - len(left)
    train = np.load(dataset.directory / "train.categorical.npy")
    floors = {**SCHEMA, "min_rows": {"user": 5}, "time": "when"}
    once, _ = ingest_file(tmp_path / "log.parquet", floors)
    counts = Counter(log["user"].drop_nulls())
    assert once.rows == sum(count for count in counts.values() if count >= 5) > dataset.rows
    shares = [once.splits[part].rows / once.rows for part in ("train", "validation", "test")]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.01)  # the cuts are those of the rows that are left
    assert len(train) == dataset.splits["train"].rows


def test_check_counts_the_rows_that_are_left_out(tmp_path: Path, log: pl.DataFrame) -> None:
    log.write_csv(tmp_path / "log.csv")
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({**SCHEMA, "k_core": 5}))
    found = check(str(tmp_path / "log.csv"), schema_file=str(tmp_path / "schema.yaml")).findings
    [told] = [finding.words for finding in found if finding.kind == "left out"]
    left_out, rows, *_ = (int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", told))
    assert (left_out, rows) == (len(log) - len(k_core(log, 5)), len(log))


def test_units_days_and_parts_of_a_log_are_filtered_as_the_whole(tmp_path: Path, log: pl.DataFrame) -> None:
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({**SCHEMA, "k_core": 5}))
    schema = str(tmp_path / "schema.yaml")
    log.write_parquet(tmp_path / "log.parquet", row_group_size=300)
    halves = [tmp_path / f"{number}.parquet" for number in range(2)]
    for number, path in enumerate(halves):
        log[number * 1_000 :][:1_000].write_parquet(path)
    whole = open_source(str(tmp_path / "log.parquet"), None, schema, tmp_path)
    days = tuple(open_day(date(2026, 3, 1 + number), [path], None, schema) for number, path in enumerate(halves))
    parts = open_source(str(halves[0]), None, schema, tmp_path, {"test": str(halves[1])})
    assert isinstance(parts, PartsSource)
    rows = len(k_core(log, 5))
    for number, source in enumerate((DaysSource("days", days, held_out=days[1].day), parts)):
        dataset, _ = ingest_source(source, tmp_path / f"cache{number}", 0, 0.01)
        assert (dataset.rows, dataset.left_out_rows) == (rows, len(log) - rows)
    for unit_bytes in (2_000, 10**9):
        (folder := tmp_path / f"{unit_bytes}").mkdir()
        dataset = build(whole, folder, "f", 0, 0.01, work=Work(unit_bytes=unit_bytes))
        assert dataset.rows == rows


@pytest.mark.parametrize(
    "keys",
    [
        {"k_core": 1_000},
        {"k_core": -3},
        {"min_rows": {"user": 0}},
        {"min_rows": {"click": 2}},
        {"k_core": 5, "item": None},
    ],
)
def test_a_core_without_rows_or_sides_is_refused(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame, keys: dict[str, Any]
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError):
        ingest_file(tmp_path / "log.parquet", {**SCHEMA, **keys})


def test_a_split_per_user_counts_the_rows_that_are_left_and_trains_a_history(
    tmp_path: Path, ingest_file: Ingest, log: pl.DataFrame
) -> None:
    log.write_parquet(tmp_path / "log.parquet")
    history = {"column": "earlier", "items": "item", "by": "user"}
    schema = {**SCHEMA, "k_core": 5, "time": "when", "split": {"per_user": "leave_one_out"}, "sequences": [history]}
    dataset, _ = ingest_file(tmp_path / "log.parquet", schema)
    left = k_core(log, 5)
    times = left.group_by("user").agg(pl.col("when").n_unique().alias("times"), pl.col("when").max().alias("last"))
    last = left.join(times.filter(pl.col("times") > 2), on="user").filter(pl.col("when") == pl.col("last"))
    assert (dataset.split_by, dataset.splits["test"].rows) == (UserTimeSplit.kind, len(last))
