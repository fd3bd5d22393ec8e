"""Files whose names promise too much or too little: recognised, or asked about."""

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shunter.errors import DataError
from shunter.ingestion.sources.criteo import CriteoSource
from shunter.ingestion.sources.open import find_files, open_source
from tests.ingestion.conftest import Ingest


@pytest.mark.parametrize("name", ["log.tsv", "log.txt", "log.csv"])
@pytest.mark.parametrize("delimiter", [";", "\t", ",", "|"])
def test_a_delimiter_that_the_header_leaves_no_doubt_about_is_found(
    tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest, name: str, delimiter: str
) -> None:
    clicks.drop("tags").write_csv(tmp_path / name, separator=delimiter)

    _, report = ingest_file(tmp_path / name, {"label": "click", "numeric": ["price"], "categorical": ["user", "shop"]})

    assert (report.rows, report.quarantined_rows) == (200, 0)


@pytest.mark.parametrize("data_format", [None, "criteo"])
@pytest.mark.parametrize(("delimiter", "written"), [(";", '";"'), (",", '","'), ("\t", r'"\\t"')])
def test_a_text_that_is_no_criteo_log_is_asked_about(
    tmp_path: Path, clicks: pl.DataFrame, data_format: str | None, delimiter: str, written: str
) -> None:
    clicks.drop("tags").write_csv(tmp_path / "log.tsv", separator=delimiter)

    with pytest.raises(DataError, match=f"did you mean --format csv with `delimiter: {written}` in the schema"):
        open_source(str(tmp_path / "log.tsv"), data_format, None, tmp_path)


def test_a_criteo_log_with_a_bad_line_first_stays_one(criteo_file: Path) -> None:
    criteo_file.write_text("header\n" + criteo_file.read_text())
    assert isinstance(open_source(str(criteo_file), None, None, criteo_file.parent), CriteoSource)


JUNK = random.Random(0).randbytes(5_000)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (JUNK, "is binary data in no known format"),
        (b"PK\x03\x04" + JUNK, "a zip archive or a spreadsheet: save it as CSV"),
        (b"PAR1" + JUNK, "a Parquet file: name it .parquet"),
        (b"\x28\xb5\x2f\xfd" + JUNK, "cannot be read"),
        ("click,user\n1,a\n".encode("utf-16"), "UTF-16: save it in UTF-8"),
        (b"\xe9\xe8\x01,\x02\n1,2\n", "lacks the columns click, price"),
        (b"click;price;user\n1;2;3\n" * 3, "lacks the columns"),
    ],
)
def test_what_is_no_csv_is_told_in_one_printable_sentence(
    tmp_path: Path, ingest_file: Ingest, content: bytes, message: str
) -> None:
    (tmp_path / "log.csv").write_bytes(content)
    schema: dict[str, Any] = {"label": "click", "numeric": ["price", "age"]}

    with pytest.raises(DataError, match=message) as caught:
        ingest_file(tmp_path / "log.csv", schema)
    assert str(caught.value).isprintable()


def test_a_schema_beside_the_data_is_no_data(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "schema.yaml", "README.md"):
        (tmp_path / name).write_text("x")
    assert [path.name for path in find_files(str(tmp_path))] == ["a.csv", "b.csv"]
