"""CSV and Parquet: values, rejected rows, and what is wrong with a file."""

import bz2
import csv
import gzip
import lzma
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from shunter.engine.data.dataset import SPLITS, Dataset
from shunter.errors import ColumnError, DataError
from shunter.ingestion.batch import Unit
from shunter.ingestion.encoding.columns import numbers, numbers_of
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.open import open_source
from shunter.ingestion.sources.tabular import CsvSource
from tests.ingestion.conftest import Ingest


def arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    return {path.name: np.load(path) for path in sorted(dataset.directory.glob("*.npy"))}


def quarantined(dataset: Dataset) -> list[tuple[int, str]]:
    with (dataset.directory / "quarantine.csv").open(newline="") as stream:
        return [(int(row["line"]), row["reason"]) for row in csv.DictReader(stream)]


def test_csv_and_parquet_give_the_same_arrays(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    clicks.write_csv(tmp_path / "plain.csv")
    (tmp_path / "packed.csv.gz").write_bytes(gzip.compress((tmp_path / "plain.csv").read_bytes()))
    clicks.write_parquet(tmp_path / "texts.parquet")
    clicks.with_columns(pl.col("tags").str.split("|")).write_parquet(tmp_path / "lists.parquet")

    sets = [
        ingest_file(tmp_path / name, clicks_schema)[0]
        for name in ("plain.csv", "packed.csv.gz", "texts.parquet", "lists.parquet")
    ]

    expected = arrays(sets[0])
    assert {f"{split}.bag2.values.npy" for split in SPLITS} < expected.keys()
    for other in sets[1:]:
        found = arrays(other)
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_what_is_known_of_the_fields(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    clicks.write_parquet(tmp_path / "clicks.parquet")
    dataset, report = ingest_file(tmp_path / "clicks.parquet", {**clicks_schema, "time": "when"})

    train = clicks.filter(pl.col("when") < sorted(clicks["when"])[160])
    fields = {field.name: field for field in dataset.fields}
    assert dataset.splits["train"].rows == len(train)
    assert dataset.splits["train"].positives == train["click"].sum()
    assert fields["price"].missing_share == pytest.approx(train["price"].null_count() / len(train))
    assert fields["shop"].missing_share == pytest.approx(train["shop"].null_count() / len(train))
    assert fields["tags"].missing_share == pytest.approx((train["tags"] == "").mean())
    assert (fields["user"].cardinality, fields["shop"].cardinality, fields["tags"].cardinality) == (7, 2, 3)
    assert [feature.rows for feature in dataset.features.categorical] == [8, 3, 4]
    assert (report.rows, report.reused, dataset.split_by) == (200, False, "time")
    assert Dataset.load(dataset.directory) == dataset


def test_numbers_are_standardised_logarithms_and_missing_ones_the_mean(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    # Without a time, files keep their order within each part.
    clicks.write_parquet(tmp_path / "clicks.parquet")
    dataset, _ = ingest_file(tmp_path / "clicks.parquet", {**clicks_schema, "time": "when"})

    price = clicks.filter(pl.col("when") < sorted(clicks["when"])[160])["price"]
    logarithm = np.sign(price.to_numpy()) * np.log1p(np.abs(price.to_numpy()))
    expected = np.nan_to_num((logarithm - np.nanmean(logarithm)) / np.nanstd(logarithm))
    assert np.allclose(arrays(dataset)["train.dense.npy"][:, 0], expected, atol=1e-5)


def test_bags_hold_every_value_in_order(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    clicks.write_csv(tmp_path / "clicks.csv")
    dataset, _ = ingest_file(tmp_path / "clicks.csv", {**clicks_schema, "time": "when"})

    found = arrays(dataset)
    values, offsets = found["train.bag2.values.npy"], found["train.bag2.offsets.npy"]
    tags = clicks.filter(pl.col("when") < sorted(clicks["when"])[160])["tags"]
    # new is the most frequent, then sale, then blue.
    names = {"new": 1, "sale": 2, "blue": 3}
    expected = [[names[tag] for tag in row.split("|") if tag] for row in tags]
    assert [values[start:end].tolist() for start, end in pairwise(offsets)] == expected


@pytest.mark.parametrize("form", ["epoch", "datetime", "text"])
def test_later_rows_are_validated_and_tested_on(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest, form: str
) -> None:
    start = datetime(2024, 2, 27, tzinfo=UTC)
    moments = [start + timedelta(hours=number - 1_700_000_000) for number in clicks["when"]]
    # The rank in time as a number, so that the arrays tell which rows are where.
    frame = clicks.with_columns(price=pl.col("when").cast(pl.Float64) - 1_700_000_000)
    if form == "datetime":
        frame = frame.with_columns(when=pl.Series(moments))
    if form == "text":
        frame = frame.with_columns(when=pl.Series([moment.isoformat() for moment in moments]))
    frame.write_parquet(tmp_path / "clicks.parquet")

    dataset, _ = ingest_file(tmp_path / "clicks.parquet", {**clicks_schema, "time": "when"})

    prices = [arrays(dataset)[f"{split}.dense.npy"] for split in SPLITS]
    assert prices[0].max() < prices[1].min()
    assert prices[1].max() < prices[2].min()
    assert "when" not in dataset.features.dense


BAD_CSV = """click,price,user,shop,tags
1,2.5,a,north,new
0,cheap,a,north,new

2,1,a,north,new
1,1,a
0,1,a,"two
lines",new
,1,a,north,new
0,1e99,b,north,
"""


def test_rejected_rows_of_a_csv_file(tmp_path: Path, clicks_schema: dict[str, Any], ingest_file: Ingest) -> None:
    good = "".join(f"{row % 2},{row},u{row % 5},north,new\n" for row in range(100))
    (tmp_path / "bad.csv").write_bytes((BAD_CSV + good).encode() + b"1,1,\xff\xfe,north,new\n1,1,1,1,1,1\n")

    dataset, _ = ingest_file(tmp_path / "bad.csv", clicks_schema, max_bad_share=0.1)

    reasons = quarantined(dataset)
    # Lines of the file, the blank one too; the quoted value with a line break spans two.
    assert [line for line, _ in reasons] == [3, 5, 6, 9, 10, 111, 112]
    expected = ["price is 'cheap'", "click is '2'", "3 columns", "click is missing", "price is", "UTF-8", "6 columns"]
    assert all(part in reason for part, (_, reason) in zip(expected, reasons, strict=True))
    assert (dataset.rows, dataset.quarantined_rows) == (102, 7)


def test_rejected_rows_of_a_parquet_file(tmp_path: Path, clicks_schema: dict[str, Any], ingest_file: Ingest) -> None:
    labels = [None, 5, *[row % 2 for row in range(98)]]
    frame = pl.DataFrame({"click": labels, "price": [float("inf") if row == 50 else float(row) for row in range(100)]})
    frame.write_parquet(tmp_path / "bad.parquet")

    dataset, _ = ingest_file(tmp_path / "bad.parquet", {"label": "click", "numeric": ["price"]}, max_bad_share=0.1)

    assert [line for line, _ in quarantined(dataset)] == [1, 2, 51]


def test_too_many_bad_rows_are_an_error_that_shows_one(
    tmp_path: Path, clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    (tmp_path / "bad.csv").write_text(BAD_CSV)

    with pytest.raises(DataError, match=r"5 of 7 rows \(71.4%\).*line \d+ of .*bad.csv"):
        ingest_file(tmp_path / "bad.csv", clicks_schema)


def test_label_by_threshold(tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest) -> None:
    clicks.with_columns(rating=pl.col("user") - 2).write_csv(tmp_path / "ratings.csv")
    schema = {"label": {"column": "rating", "positive_at_least": 1.5}, "categorical": ["user"], "numeric": ["price"]}

    dataset, _ = ingest_file(tmp_path / "ratings.csv", schema)

    assert sum(split.positives for split in dataset.splits.values()) == (clicks["user"] - 2 >= 2).sum()


@pytest.mark.parametrize("texts", [("true", "false"), ("1", "0"), ("1.0", "0.0"), ("yes", "No"), ("T", "f")])
def test_labels_in_words(tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest, texts: tuple[str, str]) -> None:
    named = clicks.with_columns(click=pl.when(pl.col("click") == 1).then(pl.lit(texts[0])).otherwise(pl.lit(texts[1])))
    named.write_csv(tmp_path / "clicks.csv")

    dataset, _ = ingest_file(tmp_path / "clicks.csv", {"label": "click", "numeric": ["price"]})

    assert sum(split.positives for split in dataset.splits.values()) == clicks["click"].sum()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_missing_column_is_named(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest, suffix: str
) -> None:
    path = tmp_path / f"clicks.{suffix}"
    (clicks.drop("shop").write_csv if suffix == "csv" else clicks.drop("shop").write_parquet)(path)

    with pytest.raises(DataError, match=r"lacks the columns shop of the schema. Columns: click, price"):
        ingest_file(path, clicks_schema)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (("empty.csv", b""), "is empty"),
        (("header.csv", b"click,price,user,shop,tags\n"), "has no readable rows"),
        (("empty.parquet", b""), "cannot be read as Parquet|is empty"),
        (("text.parquet", b"click,price\n1,2\n"), "cannot be read as Parquet"),
        (("short.csv.gz", gzip.compress(b"click,price,user,shop,tags\n" + b"1,2,3,4,5\n" * 9999)[:-30]), "truncated"),
    ],
)
def test_unusable_files(
    tmp_path: Path, clicks_schema: dict[str, Any], ingest_file: Ingest, file: tuple[str, bytes], message: str
) -> None:
    name, content = file
    (tmp_path / name).write_bytes(content)

    with pytest.raises(DataError, match=message):
        ingest_file(tmp_path / name, clicks_schema)


def test_list_column_must_be_multi_valued(tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest) -> None:
    clicks.with_columns(pl.col("tags").str.split("|")).write_parquet(tmp_path / "lists.parquet")

    with pytest.raises(DataError, match="multi_valued"):
        ingest_file(tmp_path / "lists.parquet", {"label": "click", "categorical": ["tags"]})


def test_structures_are_refused(tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest) -> None:
    clicks.with_columns(user=pl.struct("user", "price")).write_parquet(tmp_path / "structs.parquet")

    with pytest.raises(ColumnError) as caught:
        ingest_file(tmp_path / "structs.parquet", {"label": "click", "categorical": ["user"]})
    assert caught.value.column == "user"


def test_one_unreadable_time_does_not_spoil_its_neighbours(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    texts = clicks["when"].cast(pl.String).to_list()
    clicks.with_columns(when=pl.Series(["never", *texts[1:]])).write_csv(tmp_path / "clicks.csv")

    dataset, _ = ingest_file(tmp_path / "clicks.csv", {**clicks_schema, "time": "when"})

    assert (dataset.rows, quarantined(dataset)[0][0]) == (199, 2)


@pytest.mark.parametrize(
    "fault", [("click", "maybe", "click is 'maybe', expected 0 or 1"), ("when", "soon", "when is 'soon', expected")]
)
def test_with_a_time_column_the_real_fault_of_the_rows_is_told(
    tmp_path: Path,
    clicks: pl.DataFrame,
    clicks_schema: dict[str, Any],
    ingest_file: Ingest,
    fault: tuple[str, str, str],
) -> None:
    column, value, message = fault
    clicks.with_columns(pl.lit(value).alias(column)).write_csv(tmp_path / "clicks.csv")

    with pytest.raises(DataError, match=r"200 of 200 rows .*" + message):
        ingest_file(tmp_path / "clicks.csv", {**clicks_schema, "time": "when"})


def test_a_log_with_a_time_column_and_no_rows_holds_no_row(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest
) -> None:
    clicks.head(0).write_csv(tmp_path / "clicks.csv")

    with pytest.raises(DataError, match="has no readable rows"):
        ingest_file(tmp_path / "clicks.csv", {**clicks_schema, "time": "when"})


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_with_their_columns_in_another_order_are_aligned_by_name(
    tmp_path: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], ingest_file: Ingest, suffix: str
) -> None:
    for name, second in (("same", clicks[100:]), ("other", clicks[100:].select(reversed(clicks.columns)))):
        (tmp_path / name).mkdir()
        for number, part in enumerate((clicks[:100], second)):
            getattr(part, f"write_{suffix}")(tmp_path / name / f"part_{number}.{suffix}")

    same, other = (ingest_file(tmp_path / name, clicks_schema)[0] for name in ("same", "other"))

    assert all(np.array_equal(arrays(other)[name], array) for name, array in arrays(same).items())


@pytest.mark.parametrize(("columns", "expected_blocks"), [(10, 3), (1_000, 1)])
def test_a_wide_file_is_not_read_a_few_rows_at_a_time(tmp_path: Path, columns: int, expected_blocks: int) -> None:
    names = ["click", *(f"c{number}" for number in range(columns))]
    row = ",".join(["1", *["12345"] * columns]) + "\n"
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n" + row * (9_000_000 // len(row)))
    schema = Schema.model_validate({"label": "click", "numeric": names[1:]})

    chunks = list(CsvSource("wide", schema, (tmp_path / "wide.csv",)).chunks())

    assert len(chunks) == expected_blocks
    assert sum(len(chunk.lines) for chunk in chunks) == 9_000_000 // len(row)


def test_many_columns_are_read_as_each_alone() -> None:
    texts = pl.Series(["1", " 2.5 ", "", None, "x", "inf", "nan", "1e400"])
    columns = [texts, pl.Series([1, None, 3, 4, 5, 6, 7, 8]), pl.Series([1.5, float("nan")] * 4), texts.reverse()]
    for (values, bad), series in zip(numbers_of(columns), columns, strict=True):
        alone, alone_bad = numbers(series)
        assert np.array_equal(values, alone, equal_nan=True)
        assert np.array_equal(bad, alone_bad)
    assert numbers(texts)[1].tolist() == [False, False, False, False, True, True, False, True]


def compressed_by_arrow(content: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def framed_by_snappy(content: bytes) -> bytes:
    """Compress in the framing format without checksums; first come a padding and a frame that is not compressed."""
    frames = b"\xff\x06\x00\x00sNaPpY\xfe\x02\x00\x00ab"
    for start in range(0, len(content), 1 << 16):
        part = content[start : start + (1 << 16)]
        data, kind = (part, 1) if start == 0 else (pa.Codec("snappy").compress(part, asbytes=True), 0)
        frames += bytes([kind]) + (len(data) + 4).to_bytes(3, "little") + bytes(4) + data
    return frames


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": partial(compressed_by_arrow, codec="zstd"),
    "lz4": partial(compressed_by_arrow, codec="lz4"),
    "sz": framed_by_snappy,
}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_compressed_texts_are_read_and_truncated_ones_refused(tmp_path: Path, suffix: str) -> None:
    path, schema = tmp_path / f"log.csv.{suffix}", tmp_path / "schema.yaml"
    schema.write_text("label: click\nnumeric: [price]")
    content = b"click,price\n" + b"".join(b"%d,%d\n" % (row % 2, row * 7919 % 10_007) for row in range(50_000))
    packed = COMPRESSIONS[suffix]
    path.write_bytes(packed(content[:300_000]) + packed(content[300_000:]))

    source = open_source(str(path), None, str(schema), tmp_path)
    assert [*source.units(1000)] == [Unit(path)]
    assert sum(len(source.parse(chunk).labels) for chunk in source.chunks()) == 50_000
    path.write_bytes(packed(content)[:-500])
    with pytest.raises(DataError):
        list(source.chunks())
    budget = Budget(max_bytes=10_000, max_rows=None)
    path.write_bytes(packed(content))
    with pytest.raises(DataError):
        list(source.chunks(budget=budget))
