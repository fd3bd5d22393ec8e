"""Types of columns in each carrier: the table of docs/reference/formats.md is what these files and frames give."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shunter.errors import ColumnError
from shunter.ingestion.batch import Columns
from shunter.ingestion.check import check
from shunter.ingestion.encoding.columns import bags, text_keys
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder, NumericField
from shunter.ingestion.encoding.vocabulary import VocabularyIds
from shunter.ingestion.fields import ValueForm
from shunter.ingestion.rows import read_rows
from shunter.ingestion.schema import Schema, parse_schema
from shunter.ingestion.sources.tabular import ParquetSource
from tests.ingestion.conftest import Ingest

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "formats.md"
TIME = dt.datetime(2026, 3, 9, 10, 0, 0, 250_000)
TIMES = [TIME, None, dt.datetime(2026, 3, 10)]
OF_TIMES = ["2026-03-09 10:00:00.25", None, "2026-03-10"]
DECIMALS = [Decimal("5.5"), None, Decimal(7)]
LISTS = [["5", "7"], [], ["5"]]
Values = list[Any]


def arrow(values: Values, *types: pa.DataType) -> list[pa.Array]:
    return [pa.array(values).cast(kind, safe=False) for kind in types]


def zoned(unit: str) -> pa.DataType:
    return pa.timestamp(unit, "Europe/Berlin")


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
UNITS = ("s", "ms", "us", "ns")
STRUCT = pa.array([{"x": 5, "y": {"z": "a"}}, None, {"x": 7, "y": None}])
# Type as the page names it: columns of this type, the name in the schema, and their values by role in the schema.
TYPES: dict[str, tuple[list[pa.Array], str, dict[str, Values]]] = {
    "integers of 8 to 64 bits, signed or not, with nulls": (
        arrow([5, None, 7], *INTEGERS),
        "c",
        {"numeric": [5, None, 7], "categorical": ["5", None, "7"]},
    ),
    "floats of 16, 32 and 64 bits": (
        [pa.array(np.array([5.5, np.nan, 7], kind)) for kind in (np.float16, np.float32, np.float64)],
        "c",
        {"numeric": [5.5, None, 7], "categorical": ["5.5", None, "7"]},
    ),
    "truth values": (
        [pa.array([True, None, False])],
        "c",
        {"numeric": [1, None, 0], "categorical": ["true", None, "false"]},
    ),
    "decimals of 32, 64 and 128 bits": (
        [pa.array(DECIMALS, kind) for kind in (pa.decimal32(5, 1), pa.decimal64(9, 2), pa.decimal128(20, 3))],
        "c",
        {"numeric": [5.5, None, 7], "categorical": ["5.5", None, "7"]},
    ),
    "decimals of 256 bits": (
        [pa.array(DECIMALS, pa.decimal256(50, 3))],
        "c",
        {"numeric": [5.5, None, 7], "categorical": ["5.5", None, "7"]},
    ),
    "texts, large texts, views, bytes": (arrow(["a", None, "b"], *TEXTS), "c", {"categorical": ["a", None, "b"]}),
    "dictionaries of any values": (
        [kind.dictionary_encode() for kind in arrow(["5", None, "7"], pa.string(), pa.large_string(), pa.int32())],
        "c",
        {"categorical": ["5", None, "7"]},
    ),
    "timestamps of any unit, without and with a zone": (
        [pa.array(TIMES).cast(pa.timestamp(unit), safe=False) for unit in UNITS[1:]]
        + [pa.array(TIMES, pa.timestamp(unit, "UTC")).cast(zoned(unit)) for unit in UNITS[1:]],
        "c",
        {"categorical": OF_TIMES},
    ),
    "days": (arrow([TIMES[2]], pa.date32(), pa.date64()), "c", {"categorical": ["2026-03-10"]}),
    "times of day": (
        [pa.array([dt.time(10), None], kind) for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"))],
        "c",
        {"numeric": [36_000, None], "categorical": ["10:00:00", None]},
    ),
    "durations of any unit": (
        [pa.array([dt.timedelta(minutes=5), None], pa.duration(unit)) for unit in UNITS],
        "c",
        {"numeric": [300, None], "categorical": ["300", None]},
    ),
    "fields of structs, as `c.y.z`": ([STRUCT], "c.y.z", {"categorical": ["a", None, None]}),
    "lists and large lists of single values": (
        [pa.array(LISTS, kind) for kind in (pa.list_(pa.string()), pa.large_list(pa.string()))]
        + [pa.array([[5, 7], [], [5]]), pa.array([[Decimal(5), Decimal(7)], [], [Decimal(5)]])],
        "c",
        {"multi_valued": LISTS},
    ),
    "lists of a fixed size": (
        [pa.array([[5, 7], [7, 7]], pa.list_(pa.int16(), 2))],
        "c",
        {"multi_valued": [["5", "7"], ["7", "7"]]},
    ),
    "numbers of a vector, as `c.1` or `{column: c, length: 2}`": (
        [pa.array([[5.5, 1], [7, 2.5]], kind) for kind in (pa.list_(pa.float32(), 2), pa.list_(pa.float64()))],
        "c.1",
        {"numeric": [1, 2.5]},
    ),
    "maps, lists of lists or of structs": (
        [
            pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
            pa.array([[[1]], []]),
            pa.array([[{"x": 1}], []]),
        ],
        "c",
        {"categorical": [], "multi_valued": []},
    ),
}


def in_parquet(column: pa.Array, name: str, role: str, folder: Path) -> Columns:
    path = folder / "log.parquet"
    pq.write_table(pa.table({"click": np.arange(len(column)) % 2, "c": column}), path)
    source = ParquetSource("log", Schema.model_validate({"label": "click", role: [name]}), (path,))
    [chunk] = source.chunks()
    batch = source.parse(chunk)
    assert not batch.rejected
    return batch.columns


def encoder_of(name: str, role: str) -> Encoder:
    """An encoder whose ids and numbers tell the values apart: keys of the vocabulary come in order."""
    if role == "numeric":
        return Encoder((NumericField(name, 0, 1),), (), ValueForm.CANONICAL)
    known = text_keys(pl.Series(["5", "7", "5.5", "true", "false", "a", "b", *OF_TIMES[::2], "10:00:00", "300"]))
    field = CategoricalField(name, VocabularyIds(known), role == "multi_valued", key_kind="value")
    return Encoder((), (field,), ValueForm.CANONICAL)


def in_polars(column: pa.Array, name: str, role: str, folder: Path) -> Columns:
    del folder
    frame = pl.from_arrow(pa.table({"c": column}))
    assert isinstance(frame, pl.DataFrame)
    return columns_of(encoder_of(name, role), frame.to_dict(), len(frame))


def in_pandas(column: pa.Array, name: str, role: str, folder: Path) -> Columns:
    del folder
    frame = pa.table({"c": column}).to_pandas(maps_as_pydicts="lossy")
    return columns_of(encoder_of(name, role), frame, len(frame))


def columns_of(encoder: Encoder, rows: Any, count: int) -> Any:
    return encoder.encode_table(rows, count) if isinstance(rows, dict) else encoder.encode(rows)


CARRIERS: dict[str, Callable[..., Any]] = {"Parquet": in_parquet, "polars, Arrow": in_polars, "pandas": in_pandas}


def outcome(read: Callable[..., Any], role: str, values: Values, name: str) -> str:
    """Return `yes` if the column is read as these values, `refused` if it is refused for its type."""
    try:
        found = read(role=role, name=name)
    except ColumnError:
        return "refused"
    except BaseException:
        return "no"
    return "yes" if is_equal(found, role, values, encoder_of(name, role)) else "no"


def is_equal(found: Any, role: str, values: Values, encoder: Encoder) -> bool:
    dtypes = {"numeric": pl.Float64, "categorical": pl.String, "multi_valued": pl.List(pl.String)}
    texts = pl.Series("c", values, dtypes[role])
    if isinstance(found, Columns):
        if role == "numeric":
            return np.allclose(found.numeric[0], np.array(values, np.float32), equal_nan=True)
        if role == "categorical":
            return np.array_equal(found.keys[0], text_keys(texts))
        return np.array_equal(found.bags[0].keys, bags(texts, None).keys)
    expected = encoder.encode_table({encoder.columns[0]: texts}, len(values))
    if role == "multi_valued":
        return np.array_equal(found.bags[0].values, expected.bags[0].values)
    return np.array_equal(found.categorical, expected.categorical) and np.allclose(found.dense, expected.dense)


@pytest.mark.parametrize("kind", TYPES)
def test_the_page_says_what_each_carrier_of_a_type_gives(kind: str, tmp_path: Path) -> None:
    columns, name, roles = TYPES[kind]
    cells = []
    for read in CARRIERS.values():
        found = {
            outcome(partial(read, column, folder=tmp_path), role, values, name)
            for column in columns
            for role, values in roles.items()
        }
        cells.append(" ".join(sorted(found)))
    used = ", ".join(f"`{role}`" for role in roles)
    line = f"| {kind} | {used} | {' | '.join(cells)} |"
    assert line in PAGE.read_text().splitlines()


def test_parts_of_structs_and_vectors_are_learned_and_scored_as_they_are_named(
    tmp_path: Path, ingest_file: Ingest
) -> None:
    rows = 200
    frame = pl.DataFrame(
        {
            "click": [row % 2 for row in range(rows)],
            "user": [{"id": row % 7, "age": row} for row in range(rows)],
            "vector": pl.Series([[row / 2, -row] for row in range(rows)], dtype=pl.Array(pl.Float32, 2)),
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    schema = {"label": "click", "categorical": ["user.id"], "numeric": ["user.age", {"column": "vector", "length": 2}]}
    dataset, _ = ingest_file(tmp_path / "log.parquet", schema)
    assert [field.name for field in dataset.fields] == ["user.age", "vector.0", "vector.1", "user.id"]
    encoder = Encoder.load(dataset.directory / "encoder")
    [read] = read_rows(tmp_path / "log.parquet", encoder.columns, (), rows)
    of_file = encoder.encode_table(read.to_dict(), rows)
    for of_frame in (encoder.encode(frame.to_pandas()), encoder.encode_table(frame.to_dict(), rows)):
        assert np.array_equal(of_frame.dense, of_file.dense)
        assert np.array_equal(of_frame.categorical, of_file.categorical)
    assert of_file.categorical.all()
    assert len(np.unique(of_file.dense[:, 1])) == rows
    with pytest.raises(ColumnError) as refused:
        ingest_file(tmp_path / "log.parquet", {**schema, "categorical": ["user.name"]})
    assert refused.value.column == "user.name"


def test_the_guessed_schema_names_the_fields_of_structs(tmp_path: Path) -> None:
    frame = pl.DataFrame({"click": [0, 1] * 50, "user": [{"id": row % 7, "age": row / 3} for row in range(100)]})
    frame.write_parquet(tmp_path / "log.parquet")
    guessed = check(str(tmp_path / "log.parquet")).schema
    assert guessed is not None
    schema = parse_schema(guessed)
    assert ([field.column for field in schema.categorical], schema.numeric) == (["user.id"], ("user.age",))
