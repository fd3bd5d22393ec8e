"""The same values in everything that can carry rows: their ids must not depend on it.

Each value is written as CSV (by pandas, by polars, and in other spellings), as Parquet in every Arrow type that holds
it, as columns of pandas and of polars, as JSON and as a list of Python's values, and read as scoring reads it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from shunter.ingestion.encoding.columns import from_pandas
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder
from shunter.ingestion.encoding.vocabulary import HashedIds
from shunter.ingestion.fields import ValueForm
from shunter.ingestion.rows import read_rows
from shunter.serving.few_values import ValueEncoder
from shunter.serving.table import Table

VALUES = 10_000
COLUMN = "value"
ENCODER = Encoder((), (CategoricalField(COLUMN, HashedIds(2**31 - 2), key_kind="value"),), ValueForm.CANONICAL)
Values = list[Any]


@dataclass(frozen=True)
class Kind:
    """A kind of values, and what carries them.

    Attributes:
        draw: Draws a value.
        arrow: Arrow types that hold every value of the kind.
        pandas: Types of pandas that do.
        spellings: Texts that programs write for a value.
        in_json: The value as JSON has it; None where JSON has no such value.
    """

    draw: Callable[[Random], Any]
    arrow: tuple[pa.DataType, ...]
    pandas: tuple[str, ...]
    spellings: Callable[[Any], tuple[str, ...]]
    in_json: Callable[[Any], Any] | None = None


@dataclass
class Carried:
    """Values of one kind in all their carriers.

    Attributes:
        kind: The kind.
        values: How many.
        carriers: Names of the carriers.
        differ: Values with another id in some carrier, and the carrier.
    """

    kind: str
    values: int
    carriers: list[str] = field(default_factory=list)
    differ: dict[str, str] = field(default_factory=dict)


def carried(kind: str, values: Values, folder: Path) -> Carried:
    """Read values of a kind from every carrier, and compare the ids."""
    found, expected = Carried(kind, len(values)), []
    for name, column in carriers(KINDS[kind], [*values, None], folder):
        found.carriers.append(name)
        ids = ids_of(column)
        expected = expected or ids
        for value, one, other in zip([*values, None], expected, ids, strict=True):
            if one != other:
                found.differ.setdefault(repr(value), name)
    return found


def carried_by_outcome(found: Sequence[Carried]) -> dict[str, int]:
    """Return the headline figures."""
    return {
        "values_carried": sum(one.values for one in found),
        "carriers_differ": sum(len(one.differ) for one in found),
    }


def all_carried(folder: Path, count: int, seed: int) -> Iterator[Carried]:
    """Draw values of every kind, as many of each, and carry them."""
    folder.mkdir(parents=True, exist_ok=True)
    random = Random(seed)
    for name, kind in KINDS.items():
        yield carried(name, [kind.draw(random) for _ in range(-(-count // len(KINDS)))], folder)


def ids_of(column: pl.Series | Values) -> list[int]:
    """Return the ids of a column, or of values as a request brings them."""
    if isinstance(column, list):
        few = ValueEncoder(ENCODER).encode({COLUMN: column}, len(column))
        if few is not None:
            return few.categorical[:, 0].tolist()
        column = Table(len(column), {COLUMN: column}).series(COLUMN)
    return ENCODER.encode_table({COLUMN: column}, len(column)).categorical[:, 0].tolist()


def carriers(kind: Kind, values: Values, folder: Path) -> Iterator[tuple[str, pl.Series | Values]]:
    """Yield the column in each carrier, by its name, as scoring reads it."""
    for dtype in kind.arrow:
        array = pa.array([_fitting(value, dtype) for value in values], dtype)
        pq.write_table(pa.table({COLUMN: array}), folder / "rows.parquet")
        yield f"parquet {dtype}", _from_file(folder / "rows.parquet")
        column = pl.Series(COLUMN, pl.from_arrow(array))
        yield f"polars {column.dtype}", column
        if not isinstance(column.dtype, pl.Duration | pl.Binary):  # which polars does not write
            pl.DataFrame({COLUMN: column, "beside": "x"}).write_csv(folder / "rows.csv")
            yield f"csv of polars {column.dtype}", _from_file(folder / "rows.csv")
    for dtype in kind.pandas:
        series = pd.Series(values, dtype=dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]
        yield f"pandas {dtype}", from_pandas(series)
        pd.DataFrame({COLUMN: series, "beside": "x"}).to_csv(folder / "rows.csv", index=False)
        yield f"csv of pandas {dtype}", _from_file(folder / "rows.csv")
    texts = [("",) if value is None else kind.spellings(value) for value in values]
    for place in range(max(map(len, texts))):
        written = [one[min(place, len(one) - 1)] for one in texts]
        yield f"spelling {place}", written
        yield f"frame of spelling {place}", from_pandas(pd.Series(written, dtype=object))
    if kind.in_json is not None:
        yield "json", json.loads(json.dumps([None if value is None else kind.in_json(value) for value in values]))
    yield "list", from_pandas(pd.Series(values, dtype=object))


def _from_file(path: Path) -> pl.Series:
    return pl.concat([block[COLUMN] for block in read_rows(path, [COLUMN], (), 4_096)])


def _fitting(value: Any, dtype: pa.DataType) -> Any:
    """Return a value as Arrow takes it for a type: times of a type with a zone are given in UTC."""
    if value is None:
        return None
    if pa.types.is_floating(dtype):
        return float(value)
    if pa.types.is_timestamp(dtype):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        return moment if dtype.tz is None else moment.replace(tzinfo=UTC)
    return value.encode() if pa.types.is_binary(dtype) else value


def _moment(random: Random) -> datetime:
    return datetime(1990, 1, 1) + timedelta(milliseconds=random.randrange(50 * 365 * 86_400_000))


def _in_berlin(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC).astimezone(ZoneInfo("Europe/Berlin"))


KINDS = {
    "truth": Kind(
        draw=lambda random: random.random() < 0.5,
        arrow=(pa.bool_(),),
        pandas=("boolean", "object"),
        spellings=lambda value: (str(value), str(value).lower(), str(value).upper()),
        in_json=bool,
    ),
    "whole": Kind(
        draw=lambda random: random.randrange(-(10 ** random.randrange(1, 16)), 10 ** random.randrange(1, 16)),
        arrow=(pa.int64(), pa.float64(), pa.decimal128(38, 2)),
        pandas=("Int64", "float64", "Float64", "object"),
        spellings=lambda value: (str(value), f"{value:+d}", f" {value}.00", f"{value:05d}"),
        in_json=int,
    ),
    "long whole": Kind(
        draw=lambda random: random.randrange(2**63, 2**66),
        arrow=(pa.decimal128(38, 0),),
        pandas=(),
        spellings=lambda value: (str(value), f"+{value}.0"),
        in_json=int,
    ),
    "hundredths": Kind(
        draw=lambda random: Decimal(random.randrange(-(10**8), 10**8)).scaleb(-2),
        arrow=(pa.decimal128(12, 2), pa.decimal128(20, 6), pa.float64()),
        pandas=("float64", "object"),
        spellings=lambda value: (f"{value:.2f}", f"{float(value)!r}", f"{value:+.4f}", f"{float(value):.12e}"),
        in_json=float,
    ),
    "float": Kind(
        draw=lambda random: random.gauss() * 10.0 ** random.randrange(-30, 40),
        arrow=(pa.float64(),),
        pandas=("float64", "Float64", "object"),
        spellings=lambda value: (repr(value), f"{value:.17e}", f"{value:.16E}"),
        in_json=float,
    ),
    "single": Kind(
        draw=lambda random: random.randrange(-(10**4), 10**4) / 8,  # so few digits that both types print the same
        arrow=(pa.float32(), pa.float64()),
        pandas=("float32", "float64"),
        spellings=lambda value: (repr(value), f"{value:.8f}"),
        in_json=float,
    ),
    "moment": Kind(
        draw=_moment,
        arrow=tuple(pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
        pandas=("datetime64[ms]", "datetime64[us]", "datetime64[ns]", "object"),
        spellings=lambda value: (
            value.isoformat(),
            str(value),
            f"{value.isoformat(timespec='milliseconds')}Z",
            str(_in_berlin(value)),
            _in_berlin(value).strftime("%Y-%m-%dT%H:%M:%S.%f%z"),
        ),
        in_json=lambda value: value.isoformat(),
    ),
    "day": Kind(
        draw=lambda random: date(1990, 1, 1) + timedelta(days=random.randrange(20_000)),
        arrow=(pa.date32(), pa.timestamp("ms"), pa.timestamp("ns")),
        pandas=("datetime64[s]", "object"),
        spellings=lambda value: (str(value), f"{value} 00:00:00", f"{value}T00:00Z"),
        in_json=str,
    ),
    "clock": Kind(
        draw=lambda random: (datetime.min + timedelta(milliseconds=random.randrange(86_400_000))).time(),
        arrow=(pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        pandas=("object",),
        spellings=lambda value: (str(value), value.isoformat(timespec="milliseconds")),
        in_json=time.isoformat,
    ),
    "duration": Kind(
        draw=lambda random: timedelta(milliseconds=random.randrange(10**9)),
        arrow=(pa.duration("ms"), pa.duration("us"), pa.duration("ns")),
        pandas=("timedelta64[ms]", "timedelta64[ns]"),
        spellings=lambda value: (str(pd.Timedelta(value)), repr(value.total_seconds())),
        in_json=timedelta.total_seconds,
    ),
    "text": Kind(
        draw=lambda random: "".join(random.choices("abcXYZ019.-+eE: äß", k=random.randrange(1, 9))) + "x",
        arrow=(pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())),
        pandas=("object", "string", "category"),
        spellings=lambda value: (value, f" {value}\t"),
        in_json=str,
    ),
}
