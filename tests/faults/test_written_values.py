"""Numbers, missing values and letters are read as a log writes them; a guess of the form has to be right."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import yaml

from shunter.engine.data.dataset import Dataset
from shunter.errors import DataError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.check import check
from shunter.ingestion.encoding.columns import in_usual_form, numbers
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.fields import TextForm
from shunter.ingestion.rows import read_rows
from shunter.ingestion.schema import Schema, parse_schema
from shunter.ingestion.sources.open import open_source
from shunter.serving.few_values import ValueEncoder

ROWS = 300
# What is written for a number with a point and its thousands, and how the schema says so.
WRITINGS: dict[str, tuple[dict[str, Any], Any]] = {
    "decimal comma": ({"decimal": ","}, lambda amount: f"{amount:.2f}".replace(".", ",")),
    "thousands": ({"thousands": ","}, lambda amount: f"{amount:,.2f}"),
    "both": ({"decimal": ",", "thousands": "."}, lambda amount: f"{amount:,.2f}".translate({44: ".", 46: ","})),
    "blanks": ({"decimal": ",", "thousands": " "}, lambda amount: f"{amount:,.2f}".translate({44: " ", 46: ","})),
    "apostrophes": ({"thousands": "'"}, lambda amount: f"{amount:,.2f}".replace(",", "'")),
}


def plain() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "click": draw.integers(0, 2, ROWS),
            "größe": [f"é{one}" for one in draw.integers(0, 9, ROWS)],
            "price": draw.lognormal(6, 2, ROWS).round(2),
            "when": pd.date_range("2026-03-01", periods=ROWS, freq="h"),
        }
    )


def write(path: Path, frame: pd.DataFrame, **options: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    frame.to_csv(path, index=False, **options)
    return path


def guessed(path: Path) -> tuple[dict[str, Any], Dataset]:
    """The schema that is guessed for a log, and the log read by it."""
    checked = check(str(path))
    file = path.with_suffix(".yaml")
    file.write_text(checked.schema or "", encoding="utf-8")
    dataset, _ = ingest_source(open_source(str(path), None, str(file), path), path.parent / "cache", 0, 0.01)
    assert (checked.bad_rows, dataset.quarantined_rows) == (0, 0)
    return yaml.safe_load(file.read_text(encoding="utf-8")), dataset


def arrays(dataset: Dataset) -> dict[str, Any]:
    return {path.name: np.load(path).tolist() for path in sorted(dataset.directory.glob("*.npy"))}


@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_the_guessed_schema_reads_numbers_as_they_are_written(writing: str, delimiter: str, tmp_path: Path) -> None:
    form, written = WRITINGS[writing]
    frame = plain()
    _, expected = guessed(write(tmp_path / "plain" / "log.csv", frame))
    path = write(tmp_path / "log" / "log.csv", frame.assign(price=frame["price"].map(written)), sep=delimiter)
    schema, found = guessed(path)
    assert {key: schema[key] for key in ("decimal", "thousands") if key in schema} == form
    assert schema["numeric"] == ["price"]
    assert arrays(found) == arrays(expected)
    rows = {"größe": frame["größe"], "price": frame["price"].map(written)}
    encoders = [Encoder.load(one.directory / "encoder") for one in (expected, found)]
    scored = [encoder.encode(pd.DataFrame(columns)) for encoder, columns in zip(encoders, (frame, rows), strict=True)]
    assert scored[0].dense.tolist() == scored[1].dense.tolist() == encoders[1].encode(frame).dense.tolist()
    assert encoders[0].digest() != encoders[1].digest()


@pytest.mark.parametrize(("written", "is_doubtful"), [("{:,}", True), ("{:,}.5", False)])
def test_a_thousands_mark_that_may_be_a_decimal_mark_is_told(written: str, is_doubtful: bool, tmp_path: Path) -> None:
    frame = plain()
    texts = [written.format(1_000 + 37 * row) for row in frame.index]
    checked = check(str(write(tmp_path / "log.csv", frame.assign(price=texts))))
    [line] = [one for one in (checked.schema or "").splitlines() if one.startswith("thousands:")]
    assert ("decimal:" in line) == is_doubtful


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_other_encodings_than_utf_8_are_recognised(encoding: str, tmp_path: Path) -> None:
    frame = plain()
    frame["größe"] += "ß" if encoding == "latin-1" else "€"
    _, expected = guessed(write(tmp_path / "plain" / "log.csv", frame))
    path = write(tmp_path / "log" / "log.csv", frame, encoding=encoding)
    schema, found = guessed(path)
    assert schema["encoding"] == encoding
    assert arrays(found) == arrays(expected)
    kept = Encoder.load(found.directory / "encoder").text_form.encoding
    for rows in (path, write(tmp_path / "utf_8.csv", frame)):
        [block] = read_rows(rows, ["größe"], (), ROWS, encoding=kept)
        assert block["größe"].to_list() == frame["größe"].to_list()
    quoted = frame.assign(note='a\n"b"')
    source = open_source(str(write(path, quoted, encoding=encoding)), None, str(path.with_suffix(".yaml")), path)
    units = list(source.units(2_000))
    assert len(units) > 3
    parsed = [source.parse(chunk) for unit in units for chunk in source.chunks(unit)]
    assert (sum(len(one.labels) for one in parsed), sum(len(one.rejected) for one in parsed)) == (ROWS, 0)


def test_a_byte_that_the_encoding_does_not_know_costs_its_row(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("{label: click, categorical: [user], encoding: cp1252}")
    (tmp_path / "log.csv").write_bytes(
        b"click,user\n" + b"".join(b"%d,\x80%d\n" % (row % 2, row) for row in range(99)) + b"1,\x81\n"
    )
    checked = check(str(tmp_path / "log.csv"), schema_file=str(tmp_path / "schema.yaml"))
    assert (checked.rows, checked.bad_rows) == (99, 1)


def test_lines_that_end_with_a_carriage_return(tmp_path: Path) -> None:
    frame = plain().assign(note=['a\n"b"', "c"] * (ROWS // 2))
    _, expected = guessed(write(tmp_path / "plain" / "log.csv", frame))
    _, found = guessed(write(tmp_path / "log" / "log.csv", frame, lineterminator="\r"))
    assert arrays(found) == arrays(expected)


def test_texts_that_stand_for_no_value(tmp_path: Path) -> None:
    """One that may be a value is guessed only where it takes the place of numbers or times."""
    frame = plain().assign(country=["NA", "None", "DE"] * (ROWS // 3), age=1.5 + plain().index % 40)
    missing = {"price": "\\N", "age": "-", "größe": "NULL"}
    for at, name in enumerate(missing):
        frame[name] = frame[name].astype(object).where(frame.index % 20 != at)
    _, expected = guessed(write(tmp_path / "plain" / "log.csv", frame))
    schema, found = guessed(write(tmp_path / "log" / "log.csv", frame.fillna(missing)))
    assert sorted(schema["missing"]) == sorted(missing.values())
    assert schema["numeric"] == ["price", "age"]
    assert schema["categorical"] == ["größe", "country"]
    assert schema["time"] == "when"
    assert arrays(found) == arrays(expected)
    encoder = Encoder.load(found.directory / "encoder")
    rows = {name: [*map(str, frame.fillna(missing)[name][:40])] for name in encoder.columns}
    assert ValueEncoder(encoder).encode(rows, 40) is None
    scored, expected = encoder.encode(pd.DataFrame(rows)), encoder.encode(frame.head(40))
    assert scored.dense.tolist() == expected.dense.tolist()
    assert scored.categorical.tolist() == expected.categorical.tolist()


def test_lists_of_ids_are_no_numbers_with_thousands(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    lists = [",".join(map(str, draw.integers(100, 120, 1 + row % 4))) for row in range(ROWS)]
    schema, _ = guessed(write(tmp_path / "log.csv", plain().assign(seen=lists)))
    assert not schema.keys() & {"decimal", "thousands"}
    assert schema["multi_valued"] == [{"column": "seen", "separator": ","}]


def test_a_number_in_another_form_than_that_of_the_log_is_none() -> None:
    texts = pl.Series(["1.234,5", "1234,5", "-,5", " 12 ", "1,5e3", "1.5", "12.34", "1,2,3", "true", None])
    values, bad = numbers(in_usual_form(texts, TextForm(decimal=",", thousands="."), is_number=True))
    assert values[:5].tolist() == [1234.5, 1234.5, -0.5, 12, 1500]
    assert bad.tolist() == [False] * 5 + [True] * 4 + [False]


def test_the_form_of_a_usual_log_is_in_no_fingerprint(tmp_path: Path) -> None:
    schema = {"label": "click", "numeric": ["price"]}
    usual = {"decimal": ".", "thousands": None, "missing": [], "encoding": "UTF8"}
    dumped = Schema.model_validate(schema | usual).model_dump(mode="json")
    assert dumped == Schema.model_validate(schema).model_dump(mode="json")
    assert not dumped.keys() & usual.keys()
    _, dataset = guessed(write(tmp_path / "log.csv", plain()))
    assert "text_form" not in json.loads((dataset.directory / "encoder" / "encoder.json").read_text())


@pytest.mark.parametrize(
    "keys",
    ["decimal: ';'", "{decimal: ',', thousands: ','}", "missing: [NULL]", "encoding: utf-16", "encoding: klingon"],
)
def test_forms_that_cannot_be(keys: str) -> None:
    with pytest.raises(DataError):
        parse_schema(yaml.safe_dump({"label": "click", "numeric": ["price"], **yaml.safe_load(keys)}))


@pytest.mark.parametrize("rows", ["", "x,1\nz,2\n"])
def test_a_log_of_which_no_row_can_be_read_is_an_error(rows: str, tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("{label: click, numeric: [price]}")
    (tmp_path / "log.csv").write_text(f"click,price\n{rows}")
    with pytest.raises(DataError) as caught:
        check(str(tmp_path / "log.csv"), schema_file=str(tmp_path / "schema.yaml"))
    assert caught.value.exit_code == 3
