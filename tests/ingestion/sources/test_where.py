"""Predicates on rows: one set of rows from each format, pruned partitions and row groups, refusals."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from pydantic import ValidationError

from shunter.errors import ColumnError, DataError
from shunter.ingestion.cache import fingerprint_of, ingest_source
from shunter.ingestion.check import check
from shunter.ingestion.sources.open import find_files, open_source
from shunter.ingestion.sources.tabular import ParquetSource
from shunter.ingestion.sources.where import may_choose, row_groups
from shunter.predicate import Comparison, Junction, PredicateError, both, columns_of, parse_predicate
from shunter.requests import TrainRequest
from shunter.tracking.convention import data_params

ROWS = 4_000
KEYS = "label: click\nnumeric: [price]\ncategorical: [user]\n"
FRAME = pl.DataFrame(
    {
        "click": [number % 2 for number in range(ROWS)],
        "price": [number / 8 for number in range(ROWS)],
        "user": [f"u{number % 7}" for number in range(ROWS)],
        "shop": [None if number % 11 == 0 else number % 5 for number in range(ROWS)],
        "at": [datetime(2026, 3, 1) + timedelta(minutes=number) for number in range(ROWS)],
        "flag": [number % 3 == 0 for number in range(ROWS)],
        "number": list(range(ROWS)),
    }
)
SHOP, NUMBER, AT = pl.col("shop"), pl.col("number"), pl.col("at")


@pytest.fixture
def schema(tmp_path: Path) -> str:
    (tmp_path / "schema.yaml").write_text(KEYS)
    return str(tmp_path / "schema.yaml")


def prices(log: Path, schema: str, where: str) -> list[float]:
    source = open_source(str(log), None, schema, log.parent, where=where)
    batches = [source.parse(chunk) for chunk in source.chunks()]
    assert sum(len(batch.labels) + batch.left_out for batch in batches) == ROWS
    return [float(price) for batch in batches for price in batch.columns.numeric[0]]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("number >= 3990", NUMBER >= 3990),
        ("number > 99.5 and number <= 105", NUMBER.is_between(100, 105)),
        ("number < 3 or shop = 4 and number < 20", (NUMBER < 3) | ((SHOP == 4) & (NUMBER < 20))),
        ("(number < 3 or shop = 4) and number < 20", ((NUMBER < 3) | (SHOP == 4)) & (NUMBER < 20)),
        ("shop in (1, '3')", SHOP.is_in([1, 3])),
        ("shop not in (1, 3)", ~SHOP.is_in([1, 3])),
        ("shop != 2", SHOP != 2),
        ("shop is null", SHOP.is_null()),
        ("shop IS NOT NULL AND number < 50", SHOP.is_not_null() & (NUMBER < 50)),
        ("at >= '2026-03-03' and at < '2026-03-03T00:10:00'", AT.dt.epoch("s").is_between(1772496000, 1772496599)),
        ("flag = true", pl.col("flag")),
        ("user = 'u3'", pl.col("user") == "u3"),
        ('"number" = 17', NUMBER == 17),
    ],
)
def test_each_format_gives_the_same_rows(tmp_path: Path, schema: str, where: str, expected: pl.Expr) -> None:
    wanted = FRAME.filter(expected)["price"].to_list()
    assert 0 < len(wanted) < ROWS
    writers: dict[str, Callable[[Path], Any]] = {
        "log.parquet": lambda path: FRAME.write_parquet(path, row_group_size=500),
        "log.csv": FRAME.write_csv,
        "log.jsonl": FRAME.write_ndjson,
    }
    for name, write in writers.items():
        write(tmp_path / name)
        assert prices(tmp_path / name, schema, where) == wanted, name


def test_row_groups_without_chosen_rows_are_not_decoded(tmp_path: Path, schema: str) -> None:
    FRAME.write_parquet(tmp_path / "log.parquet", row_group_size=500)
    arrow = pa_parquet.read_schema(tmp_path / "log.parquet")

    def groups(where: str) -> list[int]:
        return row_groups(tmp_path / "log.parquet", parse_predicate(where), arrow, range(8))

    assert groups("number >= 3500") == [7]
    assert groups("price < 10 or number = 3999") == [0, 7]
    assert groups("at >= '2026-03-03T17:00' and user = 'u1'") == [7]
    assert groups("number > 600 or user = 'u1'") == [*range(8)]
    source = open_source(str(tmp_path / "log.parquet"), None, schema, tmp_path, where="number in (1000, 3998)")
    assert isinstance(source, ParquetSource)
    assert [int(line) for chunk in source.chunks() for line in chunk.lines] == [1001, 3999]
    [unit] = source.units()
    assert [int(line) for chunk in source.chunks(unit) for line in chunk.lines] == [1001, 3999]


def test_other_rows_are_counted_by_units_and_by_check(tmp_path: Path, schema: str) -> None:
    FRAME.write_parquet(tmp_path / "log.parquet", row_group_size=500)
    FRAME.write_csv(tmp_path / "log.csv")
    for name in ("log.parquet", "log.csv"):
        source = open_source(str(tmp_path / name), None, schema, tmp_path, where="number < 1000 and shop = 1")
        rows = len(FRAME.filter((NUMBER < 1000) & (SHOP == 1)))
        units = [source.parse(chunk) for unit in source.units(1_000) for chunk in source.chunks(unit)]
        assert sum(batch.left_out for batch in units) == ROWS - rows
        dataset, _ = ingest_source(source, tmp_path / "cache", 0, 0.01)
        assert (dataset.rows, dataset.left_out_rows) == (rows, ROWS - rows)
        assert data_params(dataset)["data.left_out_rows"] == ROWS - rows
        found = check(str(tmp_path / name), schema_file=schema, where="number < 1000 and shop = 1").findings
        [told] = [finding.words for finding in found if finding.kind == "left out"]
        assert told.startswith(f"{ROWS - rows:,} of {ROWS:,} ")


def test_a_short_float_is_compared_by_its_decimal(tmp_path: Path, schema: str) -> None:
    FRAME.with_columns(price=pl.Series([0.1, 0.5] * (ROWS // 2), dtype=pl.Float32)).write_parquet(
        tmp_path / "l.parquet"
    )
    assert len(prices(tmp_path / "l.parquet", schema, "price = 0.1")) == ROWS // 2


def test_partitions_are_pruned_before_they_are_opened(tmp_path: Path, schema: str) -> None:
    for day in ("2026-03-01", "2026-03-02", "2026-03-03", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / "log" / f"day={day}").mkdir(parents=True)
        (tmp_path / "log" / f"day={day}" / "part-0.parquet").write_bytes(b"no Parquet")
    day = tmp_path / "log" / "day=2026-03-03" / "part-0.parquet"
    day.unlink()
    FRAME.write_parquet(day)
    assert find_files(str(tmp_path / "log"), where="day > '2026-03-02'") == (day,)
    assert len(prices(tmp_path / "log", schema, "day > '2026-03-02' and number < 9")) == 9
    with pytest.raises(DataError):
        find_files(str(tmp_path / "log"), where="day > '2026-04'")
    (tmp_path / "schema.yaml").write_text(KEYS + "where: \"day = '2026-03-03'\"\n")
    assert open_source(str(tmp_path / "log"), None, schema, tmp_path).paths == (day,)


@pytest.mark.parametrize(
    ("where", "chooses"),
    [
        ("day = '1' and price > 3", True),
        ("day = '2' and price > 3", False),
        ("day = '2' or price > 3", True),
        ("day in (2, 3)", False),
        ("day != 2", True),
    ],
)
def test_what_is_not_known_of_a_file_leaves_it_in(where: str, chooses: bool) -> None:
    assert may_choose(parse_predicate(where), {"day": "1"}) is chooses


def test_unknown_columns_and_lists_are_refused(tmp_path: Path, schema: str) -> None:
    with_lists = pa.Table.from_pylist([{"click": 1, "price": 1.0, "user": "a", "tags": ["x"]}] * 8)
    pa_parquet.write_table(with_lists, tmp_path / "log.parquet")
    for column in ("colour", "tags"):
        with pytest.raises(ColumnError) as error:
            prices(tmp_path / "log.parquet", schema, f"{column} = 'x'")
        assert error.value.column == column


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "day",
            "day =",
            "= 3",
            "day = day",
            "day > now()",
            "1 = 1",
            "day = 3; drop table x",
            "day in ()",
            "not day",
        ),
        *(
            "day = 3 and",
            "(day = 3",
            "day = 3)",
            "day = 'x",
            "day is 3",
            "day like 'x'",
            "(" * 99 + "a=1",
            "a=" + "1" * 9999,
        ),
    ],
)
def test_what_is_no_predicate_is_refused(text: str) -> None:
    with pytest.raises(PredicateError):
        parse_predicate(text)
    if text:
        with pytest.raises(ValidationError):
            TrainRequest.model_validate({"source": {"where": text}})


def test_syntax_tree() -> None:
    parsed = parse_predicate("a = 'it''s' and (b in (1, -2.5e3) or c.d is null)")
    assert parsed == Junction(
        "and",
        (
            Comparison("a", "=", ("it's",)),
            Junction("or", (Comparison("b", "in", ("1", "-2.5e3")), Comparison("c.d", "is null"))),
        ),
    )
    assert columns_of(parsed) == ("a", "b", "c.d")
    assert parse_predicate(both("a = 1 or b = 2", "c = 3") or "") == Junction(
        "and",
        (Junction("or", (Comparison("a", "=", ("1",)), Comparison("b", "=", ("2",)))), Comparison("c", "=", ("3",))),
    )


def test_a_predicate_belongs_to_the_data(tmp_path: Path, schema: str) -> None:
    FRAME.write_parquet(tmp_path / "log.parquet", row_group_size=500)
    sources = [
        open_source(str(tmp_path / "log.parquet"), None, schema, tmp_path, where=where)
        for where in (None, "number >= 1000", "shop = 3")
    ]
    assert len({fingerprint_of(source, 0, tmp_path / "memo.json") for source in sources}) == 3
    dataset, _ = ingest_source(sources[1], tmp_path / "cache", 0, 0.0)
    again, report = ingest_source(sources[1], tmp_path / "cache", 0, 0.0)
    assert (dataset.rows, dataset.where) == (3000, "number >= 1000")
    assert (again.where, report.reused) == (dataset.where, True)
    assert check(str(tmp_path / "log.parquet"), None, schema, "number < 700").rows == 700


def test_a_log_without_named_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        open_source("synthetic:100", None, None, tmp_path, where="I1 > 3")
