"""A look at a log before training: a schema for it, and what stands out."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shunter.errors import DataError, RequestError
from shunter.ingestion.check import Checked, check
from shunter.ingestion.findings import area, findings_of_dataset
from shunter.ingestion.schema import parse_schema
from tests.ingestion.conftest import Ingest

ROWS = 3_000


@pytest.fixture
def log() -> pl.DataFrame:
    """A log with a column of each kind and nothing wrong, but for few rows."""
    random = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "user": [f"u{number}" for number in random.integers(0, 200, ROWS)],
            "item_id": random.integers(0, 300, ROWS),
            "price": random.lognormal(1, 0.5, ROWS).round(2),
            "genres": ["|".join("dcmx"[: 1 + number]) for number in random.integers(0, 4, ROWS)],
            "shop": random.choice(["north", "south"], ROWS),
            "when": [f"2026-01-{1 + row * 28 // ROWS:02} 10:{row % 60:02}" for row in range(ROWS)],
            "clicked": random.choice(["yes", "no"], ROWS, p=[0.3, 0.7]),
        }
    )


def looked_at(frame: pl.DataFrame, folder: Path, schema: str | None = None) -> Checked:
    frame.write_csv(folder / "log.csv")
    if schema is not None:
        (folder / "schema.yaml").write_text(schema)
    return check(str(folder / "log.csv"), schema_file=str(folder / "schema.yaml") if schema else None)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "tsv"])
def test_a_schema_is_inferred_and_fits_the_log(
    tmp_path: Path, log: pl.DataFrame, ingest_file: Ingest, suffix: str
) -> None:
    path = tmp_path / f"log.{suffix}"
    if suffix == "parquet":
        log.write_parquet(path)
    else:
        log.write_csv(path, separator="\t" if suffix == "tsv" else ",")

    checked = check(str(path))

    assert checked.schema is not None
    schema = parse_schema(checked.schema)
    assert (schema.label.column, schema.time, schema.user, schema.item) == ("clicked", "when", "user", "item_id")
    assert schema.numeric == ("price",)
    assert [column.column for column in schema.categorical] == ["user", "item_id", "shop"]
    assert [(column.column, column.separator) for column in schema.multi_valued] == [("genres", "|")]
    assert (checked.rows, checked.bad_rows) == (ROWS, 0)
    assert checked.positive_share == pytest.approx(0.3, abs=0.03)
    assert {finding.kind for finding in checked.findings} == {"few"}
    dataset, report = ingest_file(path, schema.model_dump(mode="json", exclude_defaults=True))
    assert (report.quarantined_rows, dataset.split_by) == (0, "time")


def test_columns_of_no_use_are_left_out_with_the_reason(tmp_path: Path, log: pl.DataFrame) -> None:
    frame = log.with_columns(
        none=pl.lit(None, pl.String), country=pl.lit("de"), number=pl.int_range(ROWS), request_id=pl.lit("r") + "when"
    ).with_columns(request_id=pl.int_range(ROWS).cast(pl.String) + "x")
    text = looked_at(frame, tmp_path).schema
    assert text is not None
    assert set(parse_schema(text).features) == {"user", "item_id", "price", "genres", "shop"}
    for line in (
        "none, it is empty",
        "country, it always holds de",
        "number, the column numbers the rows",
        "request_id, nearly",
    ):
        assert f"# left out: {line}" in text


BOTH = "label: clicked\nnumeric: [price]\ncategorical: [user, shop]\ntime: when\n"


@pytest.mark.parametrize(
    ("change", "kind", "column"),
    [
        ({"shop": pl.lit("north")}, "constant", "shop"),
        ({"shop": pl.lit(None, pl.String)}, "empty", "shop"),
        ({"shop": pl.int_range(ROWS)}, "unique", "shop"),
        ({"shop": pl.col("clicked") + "!"}, "leak", "shop"),
        ({"price": pl.when(pl.col("clicked") == "yes").then(pl.col("price"))}, "leak", "price"),
        ({"price": -pl.col("price") - 100 * (pl.col("clicked") == "yes")}, "leak", "price"),
        ({"shop": pl.when(pl.int_range(ROWS) > 2_700).then(pl.lit("west")).otherwise("shop")}, "drift", "shop"),
        ({"price": pl.col("price") + pl.int_range(ROWS) // 2_600 * 5}, "drift", "price"),
        ({"clicked": pl.when(pl.int_range(ROWS) > 2_700).then(pl.lit("no")).otherwise("clicked")}, "drift", None),
        ({"clicked": pl.when(pl.int_range(ROWS) % 50 == 0).then(1).otherwise(0)}, "few", None),
    ],
)
def test_what_an_analyst_would_see(
    tmp_path: Path, log: pl.DataFrame, change: dict[str, Any], kind: str, column: str | None
) -> None:
    found = {
        (finding.kind, finding.column) for finding in looked_at(log.with_columns(**change), tmp_path, BOTH).findings
    }
    usual = {("few", None)}
    assert found - usual == {(kind, column)} - usual - {("none", None)}
    assert (kind, column) in found | {("none", None)}


def test_rows_that_were_written_twice_are_seen(tmp_path: Path, log: pl.DataFrame) -> None:
    found = looked_at(pl.concat([log, log.head(500)]), tmp_path, BOTH).findings
    assert next(finding.words for finding in found if finding.kind == "duplicates").startswith("14.3% of the rows")


def test_rows_that_cannot_be_read_are_counted_and_unclear_times_said(tmp_path: Path, log: pl.DataFrame) -> None:
    prices = log["price"].cast(pl.String).set(pl.int_range(ROWS, eager=True) % 100 == 0, "cheap")
    frame = log.with_columns(price=prices, when=pl.lit("03/04/2026"))
    checked = looked_at(frame, tmp_path, BOTH)
    assert checked.bad_rows == 30
    assert checked.first_fault is not None
    assert "log.csv: price is 'cheap', expected a finite number" in checked.first_fault
    assert [finding.column for finding in checked.findings if finding.kind == "time"] == ["when"]


def test_what_cannot_be_checked_is_told(tmp_path: Path, log: pl.DataFrame) -> None:
    with pytest.raises(DataError, match="No column looks like a label"):
        looked_at(log.drop("clicked", "shop"), tmp_path)
    with pytest.raises(DataError, match="no useful feature column"):
        looked_at(log.select("clicked"), tmp_path)
    with pytest.raises(RequestError, match="is a built-in data set"):
        check("ml-100k")


def test_a_criteo_log_is_looked_at_as_it_is(criteo_file: Path) -> None:
    checked = check(str(criteo_file))
    assert (checked.rows, checked.schema) == (1_000, None)


def test_what_ingestion_knows_is_told_without_reading_again(
    tmp_path: Path, log: pl.DataFrame, ingest_file: Ingest
) -> None:
    frame = log.with_columns(shop=pl.lit("north"), user=pl.int_range(ROWS))
    frame.write_csv(tmp_path / "log.csv")
    dataset, _ = ingest_file(tmp_path / "log.csv", {"label": "clicked", "categorical": ["user", "shop"]})
    assert [(found.kind, found.column) for found in findings_of_dataset(dataset)] == [
        ("unique", "user"),
        ("constant", "shop"),
        ("few", None),
    ]


def test_area_under_the_curve_counts_ties_half() -> None:
    labels = np.array([0, 0, 1, 1], np.float32)
    assert area(np.array([1.0, 2.0, 3.0, 4.0]), labels) == 1
    assert area(np.array([1.0, 1.0, 1.0, 1.0]), labels) == 0.5
    assert area(np.array([1.0, 2.0, 2.0, 3.0]), labels) == 0.875
