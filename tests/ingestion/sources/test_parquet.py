"""Parquet files of a few kilobytes that would grow to gigabytes, and what lies in the place of files."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shunter.errors import DataError, RequestError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.files import open_binary
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.parquet import open_parquet, read_batches
from shunter.ingestion.sources.tabular import CsvSource, ParquetSource

LIMIT_BYTES = 20_000_000
LONG = "x" * 65_536
SCHEMA = Schema(label="click", categorical=["text"])  # pyright: ignore[reportArgumentType]


def one_long_text_in_a_dictionary(path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(65_536, np.int32)), pa.array([LONG]))
    table = pa.table({"click": np.ones(65_536, np.int64), "text": texts})
    # Without the schema of Arrow the decoder would write every value out.
    pq.write_table(table, path, compression="zstd", store_schema=False)


def a_dictionary_by_its_schema(path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(65_536, np.int32)), pa.array([LONG]))
    pq.write_table(pa.table({"click": np.ones(65_536, np.int64), "text": texts}), path, compression="zstd")


def zeros(path: Path) -> None:
    table = pa.table({"click": np.zeros(6_000_000, np.int64), "text": np.zeros(6_000_000, np.int64)})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)


def differences_of_nothing(path: Path) -> None:
    table = pa.table({"click": np.ones(4_000, np.int64), "text": pa.array([LONG] * 4_000)})
    encodings = {"text": "DELTA_BYTE_ARRAY", "click": "PLAIN"}
    pq.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding=encodings)


BOMBS = [one_long_text_in_a_dictionary, a_dictionary_by_its_schema, zeros, differences_of_nothing]

MEASURE = """
import sys, pyarrow as pa
from pathlib import Path
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.parquet import open_parquet, read_batches
from shunter.errors import DataError
path = Path(sys.argv[1])
try:
    with open_parquet(path) as (file, stream):
        for _ in read_batches(path, file, stream, ["click", "text"], Budget(int(sys.argv[2]), None)):
            pass
except DataError as error:
    print(error)
print(pa.default_memory_pool().max_memory())
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_does_not_take_more_than_the_limit(tmp_path: Path, bomb) -> None:
    bomb(tmp_path / "log.parquet")
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "log.parquet"), str(LIMIT_BYTES)]
    message, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "20,000,000" in message
    assert int(peak) < 4 * LIMIT_BYTES


def test_a_file_that_lies_about_its_size_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    zeros(path)
    told = pq.read_metadata(path).row_group(0).column(1).total_uncompressed_size
    data = path.read_bytes()
    assert data.count(number(told)) >= 1
    # A small number with as many bytes as the true one.
    small = bytes([number(1)[0] | 128, *[128] * (len(number(told)) - 2), 0])
    path.write_bytes(data.replace(number(told), small))
    assert pq.read_metadata(path).row_group(0).column(1).total_uncompressed_size < 100
    with pytest.raises(DataError, match="has more than the permitted"):
        read(path, ["click", "text"], LIMIT_BYTES)


def number(value: int) -> bytes:
    """A number as Thrift writes it."""
    value, found = value * 2, bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def read(path: Path, columns: list[str], most_bytes: int | None) -> pa.Table:
    with open_parquet(path) as (file, stream):
        return pa.Table.from_batches(list(read_batches(path, file, stream, columns, Budget(most_bytes, None))))


@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"store_schema": False}]
)
def test_a_limit_changes_nothing_of_what_is_read(tmp_path: Path, options: dict) -> None:
    random = np.random.default_rng(0)
    table = pa.table(
        {
            "number": random.standard_normal(5_000),
            "text": pa.array(random.integers(0, 900, 5_000).astype(str)).cast(pa.large_string()),
            "some": pa.array([None if value < 3 else f"value {value}" for value in random.integers(0, 9, 5_000)]),
            "bytes": pa.array([f"{value}".encode() for value in random.integers(0, 9, 5_000)]),
            "list": pa.array([[f"{value}"] * (value % 3) for value in random.integers(0, 9, 5_000)]),
            "kind": pa.array(random.integers(0, 9, 5_000).astype(str)).dictionary_encode(),
            "flag": pa.array(random.integers(0, 2, 5_000).astype(bool)),
        }
    )
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=1_999, data_page_size=2_000, **options)
    names = ["list", "number", "text", "some", "bytes", "kind", "flag"]
    free, limited = (read(tmp_path / "log.parquet", names, most) for most in (None, 10_000_000))
    assert pl.from_arrow(limited).equals(pl.from_arrow(free))  # type: ignore[union-attr]
    assert limited.schema.equals(free.schema)
    with pytest.raises(DataError, match="has more than the permitted"):
        read(tmp_path / "log.parquet", names, 200_000)


def test_lists_that_are_stored_in_two_ways_are_read_within_the_limit(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lists = pa.array([[f"text {value}"] * (value % 3) for value in random.integers(0, 3_000, 9_000)])
    pq.write_table(pa.table({"tags": lists}), tmp_path / "log.parquet", dictionary_pagesize_limit=4_000)
    free, limited = (read(tmp_path / "log.parquet", ["tags"], most) for most in (None, 1_000_000))
    assert limited.equals(free)
    longer = pa.chunked_array([pa.array([["x" * 900]]), lists])
    pq.write_table(pa.table({"tags": longer}), tmp_path / "log.parquet", dictionary_pagesize_limit=4_000)
    with pytest.raises(DataError, match=re.escape("tags.list.element")):
        read(tmp_path / "log.parquet", ["tags"], 1_000_000)


def test_lists_count_with_every_value(tmp_path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5_000, np.int32)), pa.array([LONG]))
    lists = pa.ListArray.from_arrays(pa.array([0, 5_000]), values)
    pq.write_table(pa.table({"click": [1], "tags": lists}), tmp_path / "log.parquet", store_schema=False)
    with pytest.raises(DataError, match="has more than the permitted"):
        read(tmp_path / "log.parquet", ["click", "tags"], LIMIT_BYTES)


@pytest.mark.parametrize("damage", [0, 8, 60, 200])
def test_a_damaged_page_is_told_in_one_sentence(tmp_path: Path, damage: int) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"click": [1, 0] * 99, "text": ["a", "b"] * 99}), path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[4 + damage : 24 + damage] = b"\xff" * 20
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read(path, ["click", "text"], LIMIT_BYTES)
    assert "\n" not in str(caught.value)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.close()


@pytest.mark.parametrize("kind", [CsvSource, ParquetSource])
@pytest.mark.parametrize(("make", "told"), [(pipe, "a pipe"), (device, "a device"), (listening, "a socket")])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make, told: str, kind: type[CsvSource]
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path = Path("log")
    make(path)
    with pytest.raises(DataError, match=f"log cannot be read .*it is {told}"):
        next(iter(kind("log", SCHEMA, (path,)).chunks()))
    with pytest.raises(DataError, match=f"log cannot be read .*it is {told}"):
        ingest_source(kind("log", SCHEMA, (path,)), tmp_path / "cache", 0, 0.01)


def test_a_link_that_leaves_the_roots_after_the_look_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "roots").mkdir()
    (tmp_path / "secret.csv").write_text("secret\n")
    path = tmp_path / "roots" / "log.csv"
    path.symlink_to(tmp_path / "secret.csv")
    monkeypatch.setenv("SHUNTER_DATA_ROOTS", str(tmp_path / "roots"))
    with pytest.raises(RequestError, match="is outside"), open_binary(path):
        pass
