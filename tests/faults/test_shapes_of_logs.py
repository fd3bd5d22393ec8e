"""A log of an unusual shape is read as what it holds, or one column is refused by name."""

import gzip
import json
import os
import random
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import yaml

from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.interactions import check_order, read_interactions
from shunter.errors import ColumnError, DataError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.check import check
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sample import MOST_COLUMNS
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.header import column_kinds
from shunter.ingestion.sources.open import open_source
from shunter.ingestion.sources.tabular import CsvSource, ParquetSource

ROWS = 300
NESTED = {
    "struct": pa.array([{"a": 1}] * ROWS),
    "map": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
    "lists": pa.array([[[1]]] * ROWS),
    "huge": pa.array([Decimal(1)] * ROWS, pa.decimal256(60, 2)),
}


def plain() -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {
        "click": draw.integers(0, 2, ROWS),
        "user": [f"u{one}" for one in draw.integers(0, 9, ROWS)],
        "price": draw.lognormal(0, 1, ROWS).astype(np.float16),
        "count": draw.integers(0, 99, ROWS),
    }


def write(path: Path, columns: dict[str, Any]) -> Path:
    pa_parquet.write_table(pa.table(columns), path)
    return path


def ingest(path: Path, max_bad_share: float = 0, **schema: Any) -> Dataset:
    file = path.parent / "schema.yaml"
    file.write_text(yaml.safe_dump(schema))
    return ingest_source(open_source(str(path), None, str(file), path), path.parent / "cache", 0, max_bad_share)[0]


def arrays(dataset: Dataset) -> dict[str, Any]:
    return {path.name: np.load(path).tolist() for path in sorted(dataset.directory.glob("*.npy"))}


@pytest.mark.parametrize("role", ["label", "weight", "time", "numeric", "categorical", "multi_valued"])
def test_categories_are_read_as_their_values_in_every_role(role: str, tmp_path: Path) -> None:
    columns = plain()
    column = {"label": "click", "categorical": "user", "multi_valued": "user"}.get(role, "count")
    schema = {"label": "click", "categorical": ["price"], role: column}
    texts = {**columns, column: pa.array(map(str, columns[column])).dictionary_encode()}
    expected = ingest(write(tmp_path / "log.parquet", columns), **schema)
    found = ingest(write(tmp_path / "categories.parquet", texts), **schema)
    assert arrays(found) == arrays(expected)


def test_rows_to_be_scored_may_hold_categories_and_bytes(tmp_path: Path) -> None:
    columns = {**plain(), "tags": ["a|b", "b", ""] * (ROWS // 3)}
    schema = {"numeric": ["count"], "categorical": ["user"], "multi_valued": [{"column": "tags", "separator": "|"}]}
    encoder = Encoder.load(
        ingest(write(tmp_path / "log.parquet", columns), label="click", **schema).directory / "encoder"
    )
    expected = encoder.encode(pd.DataFrame(columns))
    carried = encoder.encode(pd.DataFrame({name: pd.Categorical(map(str, columns[name])) for name in encoder.columns}))
    assert carried.dense.tolist() == expected.dense.tolist()
    assert carried.categorical.tolist() == expected.categorical.tolist()
    assert carried.bags[0].values.tolist() == expected.bags[0].values.tolist()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_log_is_split_by_durations(unit: str, tmp_path: Path) -> None:
    past = pa.array([timedelta(seconds=row) for row in range(ROWS)], pa.duration(unit))
    path = write(tmp_path / "log.parquet", {**plain(), "past": past})
    dataset = ingest(path, label="click", numeric=["count"], time="past")
    assert dataset.time_range == (0, (ROWS - 1) * 1e6)


def test_nested_columns_and_repeated_names_are_named_while_the_others_are_read(tmp_path: Path) -> None:
    table = pa.table({**plain(), **NESTED}).append_column("count", pa.array([0] * ROWS))
    pa_parquet.write_table(table, tmp_path / "log.parquet")
    checked = check(str(tmp_path / "log.parquet"))
    assert checked.rows == ROWS
    assert checked.schema is not None
    left_out = [line.split()[3].strip(',"') for line in checked.schema.splitlines() if line.startswith("# left out")]
    assert sorted(left_out) == sorted(["struct.a", "huge", "map", "lists", "count"])  # the first two are constant
    for column in ("struct", "map", "lists", "count"):
        with pytest.raises(ColumnError) as caught:
            ingest(tmp_path / "log.parquet", label="click", categorical=["user", column])
        assert caught.value.column == column
    assert ingest(tmp_path / "log.parquet", label="click", categorical=["user", "struct.a", "huge"]).rows == ROWS


def test_durations_and_days_do_not_number_the_rows(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    past = pa.array([timedelta(seconds=int(one)) for one in draw.integers(1, 99, ROWS)])
    day = pa.array(draw.integers(20_000, 20_009, ROWS), pa.int32()).cast(pa.date32())
    time = pa.array(pd.date_range("2026-03-01", periods=ROWS, freq="min"))
    checked = check(str(write(tmp_path / "log.parquet", {**plain(), "past": past, "day": day, "time": time})))
    schema = yaml.safe_load(checked.schema or "")
    assert "past" in schema["numeric"]
    assert "day" in schema["categorical"]
    assert schema["time"] == "time"


def test_a_name_twice_in_the_header_of_a_csv_file(tmp_path: Path) -> None:
    lines = [f"{row % 2},u{row % 7},x,y" for row in range(ROWS)]
    (tmp_path / "log.csv").write_text("\n".join(["click,user,note,note", *lines]))
    assert yaml.safe_load(check(str(tmp_path / "log.csv")).schema or "")["categorical"] == ["user"]
    with pytest.raises(ColumnError) as caught:
        ingest(tmp_path / "log.csv", label="click", categorical=["note"])
    assert caught.value.column == "note"


def test_a_log_with_too_many_columns_needs_a_schema_and_is_read_with_one(tmp_path: Path) -> None:
    """The header is longer than the first block of the file."""
    names = [f"{'c' * 250}{number}" for number in range(MOST_COLUMNS)]
    rows = [",".join([f"{row % 2}", *["1"] * len(names)]) for row in range(40)]
    (tmp_path / "log.csv").write_text("\n".join([",".join(["click", *names]), *rows]))
    with pytest.raises(DataError):
        check(str(tmp_path / "log.csv"))
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"label": "click", "numeric": [names[-1]]}))
    assert check(str(tmp_path / "log.csv"), schema_file=str(tmp_path / "schema.yaml")).rows == 40


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_empty_parts_of_a_folder_are_passed_over(kind: str, tmp_path: Path) -> None:
    folder, frame = tmp_path / "log", pd.DataFrame(plain())
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    for number in (0, 3):
        (folder / f"part-{number}.{kind}").write_bytes(gzip.compress(b"") if kind == "csv.gz" else b"")
    for number, rows in ((1, 0), (2, ROWS), (4, 0)):
        path = folder / f"part-{number}.{kind}"
        frame[:rows].to_parquet(path) if kind == "parquet" else frame[:rows].to_csv(path, index=False)
    assert check(str(folder)).rows == ROWS
    assert ingest(folder, label="click", categorical=["user"]).rows == ROWS


def test_a_file_that_is_a_header_only_says_nothing_of_the_kinds_of_its_columns(tmp_path: Path) -> None:
    schema = Schema.model_validate({"label": "click", "numeric": ["price"]})
    paths = tuple(tmp_path / name for name in ("empty.csv", "log.csv"))
    pd.DataFrame({"click": [], "price": []}).to_csv(paths[0], index=False)
    pd.DataFrame({"click": [0, 1], "price": [1.5, None]}).to_csv(paths[1], index=False)
    kinds = {"click": "number", "price": "number"}
    assert column_kinds(CsvSource("log", schema, paths)) == kinds
    assert column_kinds(CsvSource("log", schema, paths[:1])) == dict.fromkeys(kinds, "empty")
    write(tmp_path / "log.parquet", {"click": [0], "price": pa.nulls(1)})
    found = column_kinds(ParquetSource("log", schema, (tmp_path / "log.parquet",)))
    assert found == {"click": "number", "price": "empty"}


@pytest.mark.parametrize("opening", ["[", '{"user":'])
def test_a_line_of_json_that_is_nested_too_deeply_is_set_aside(opening: str, tmp_path: Path) -> None:
    lines = [json.dumps({"click": row % 2, "user": f"u{row % 9}", "note": "[{" * 99}) for row in range(ROWS)]
    (tmp_path / "log.jsonl").write_text("\n".join([opening * 100_000, *lines]) + "\n")
    assert ingest(tmp_path / "log.jsonl", max_bad_share=0.01, label="click", categorical=["user"]).rows == ROWS


@pytest.mark.parametrize("integer", [2**63 - 1, 2**63, 2**64 + 5, 2**130])
def test_an_integer_of_any_size_in_a_line_of_json_is_a_value_of_its_own(integer: int, tmp_path: Path) -> None:
    rows = [
        {"click": row % 3 % 2, "user": user, "price": row}
        for row, user in enumerate([integer, integer + 1, 1, 2] * (ROWS // 4))
    ]
    found = {}
    for kind in ("jsonl", "csv"):
        folder = tmp_path / kind
        folder.mkdir()
        lines = ["click,user,price", *(",".join(map(str, row.values())) for row in rows)]
        (folder / f"log.{kind}").write_text("\n".join(lines if kind == "csv" else map(json.dumps, rows)) + "\n")
        check(str(folder / f"log.{kind}"))
        found[kind] = arrays(ingest(folder / f"log.{kind}", label="click", numeric=["price"], categorical=["user"]))
    assert found["jsonl"] == found["csv"]
    assert any(len({*np.ravel(values)}) == 4 for values in found["csv"].values())


def test_letters_that_the_terminal_cannot_show_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("click,größe\n" + "".join(f"{row % 2},é{row % 5}\n" for row in range(ROWS)))
    command = [str(Path(sys.executable).with_name("shunter")), "check", str(tmp_path / "log.csv")]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert done.returncode == 0
    assert yaml.safe_load(done.stdout)["categorical"] == ["größe"]


def test_a_log_that_is_not_sorted_by_time_is_ranked_as_the_sorted_one(tmp_path: Path) -> None:
    draw = random.Random(0)
    lines = [f"{int(draw.random() < 0.6)},{draw.randrange(9)},{draw.randrange(20)},{row}" for row in range(ROWS)]
    schema = {"label": "click", "categorical": ["user", "item"], "user": "user", "item": "item", "time": "time"}
    found = []
    for name in ("sorted", "unsorted"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["click,user,item,time", *lines]))
        dataset = ingest(tmp_path / f"{name}.csv", **schema, vocabulary={"hash_size": 1_000})
        check_order(dataset)
        pairs = [read_interactions(dataset, split).in_order() for split in ("train", "validation", "test")]
        found.append([[side.tolist() for side in pair] for pair in pairs])
        assert (dataset.directory / "train.time.npy").exists() == (name == "unsorted")
        draw.shuffle(lines)
    assert found[0] == found[1]
