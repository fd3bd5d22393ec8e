"""Evaluation of predicates: which rows, row groups and files of a log are read.

A value is compared by its canonical text, so that the same predicate chooses the same rows of each file format. Numeric
literals are compared as numbers, other literals as texts. A missing value satisfies no comparison.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pa_dataset
from pyarrow.fs import LocalFileSystem

from shunter.errors import ColumnError
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding.canonical import canonical_texts
from shunter.ingestion.fields import TextForm
from shunter.predicate import Comparison, Predicate, parse_predicate

_ORDERS: dict[str, Callable[[Any, Any], Any]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_COMPARISONS = {**_ORDERS, "=": eq, "!=": ne}


def chosen_rows(table: pl.DataFrame, predicate: Predicate, form: TextForm, path: Path) -> pl.Series:
    """Return the rows that a predicate chooses, bool [rows].

    Raises:
        ColumnError: A column holds lists.
    """
    return table.select(_expression(predicate, lambda one: _compared(table[one.column], one, form, path))).to_series()


def may_choose(predicate: Predicate, known: Mapping[str, str | None]) -> bool:
    """Return False if a predicate cannot select a row of a file, given the columns with a constant value."""
    frame = pl.DataFrame([pl.Series(name, [value], pl.String) for name, value in known.items()])

    def compared(one: Comparison) -> pl.Expr:
        if one.column not in known:
            return pl.lit(None, pl.Boolean)  # neither true nor false
        return _compared(frame[one.column], one, TextForm(), Path())

    return pl.select(_expression(predicate, compared)).item() is not False


def row_groups(path: Path, predicate: Predicate, schema: pa.Schema, groups: Iterable[int]) -> list[int]:
    """Return the row groups of a Parquet file that may hold chosen rows, by the statistics of their columns."""
    bounds = _bounds(predicate, schema)
    if bounds is None:
        return [*groups]
    fragment = pa_dataset.ParquetFileFormat().make_fragment(str(path), LocalFileSystem()).subset(bounds, schema)
    return sorted({*groups} & {group.id for group in fragment.row_groups})


def parsed(text: str | None) -> Predicate | None:
    """Return the predicate of a schema, which is valid; None if the schema has none."""
    return None if text is None else parse_predicate(text)


def _expression(predicate: Predicate, compared: Callable[[Comparison], pl.Expr]) -> pl.Expr:
    if isinstance(predicate, Comparison):
        return compared(predicate)
    operator = and_ if predicate.operator == "and" else or_
    return reduce(operator, [_expression(part, compared) for part in predicate.parts])


def _compared(series: pl.Series, one: Comparison, form: TextForm, path: Path) -> pl.Expr:
    if isinstance(series.dtype, pl.List | pl.Array | pl.Struct):
        raise ColumnError(one.column, path, "holds lists, which `where` cannot compare")
    literals = canonical_texts(pl.Series(one.literals, dtype=pl.String), "value")
    numbers = literals.cast(pl.Float64, strict=False)
    is_number = bool(len(numbers)) and not numbers.has_nulls()
    texts = canonical_texts(read.in_usual_form(read.as_text(series)[0], form, is_number=is_number), "value")
    if one.operator in ("is null", "is not null"):
        found = texts.is_null() if one.operator == "is null" else texts.is_not_null()
    elif one.operator in ("in", "not in"):
        found = texts.is_in(literals.implode())
        found = found if one.operator == "in" else ~found
    elif is_number and one.operator in _ORDERS:
        found = _ORDERS[one.operator](texts.cast(pl.Float64, strict=False), numbers[0])
    else:
        found = _COMPARISONS[one.operator](texts, literals[0])
    return pl.lit(found.fill_null(value=False))


def _bounds(predicate: Predicate, schema: pa.Schema) -> Any:
    """Return the part of a predicate that bounds numbers and times, as a PyArrow expression; None if there is none."""
    if isinstance(predicate, Comparison):
        return _bound(predicate, schema)
    parts = [_bounds(part, schema) for part in predicate.parts]
    if predicate.operator == "or":
        return None if any(part is None for part in parts) else reduce(or_, parts)
    known = [part for part in parts if part is not None]
    return reduce(and_, known) if known else None


def _bound(one: Comparison, schema: pa.Schema) -> Any:
    if one.column not in schema.names or one.operator not in ("=", "in", *_ORDERS):
        return None
    kind = schema.field(one.column).type
    is_number = pa.types.is_integer(kind) or pa.types.is_float64(kind)  # a float of 32 bits equals its shortest decimal
    if not (is_number or pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)):
        return None
    try:
        literals = [pa.scalar(text).cast(pa.float64() if is_number else kind) for text in one.literals]
    except pa.ArrowException:
        return None  # a text that is no such value is compared row by row
    column = pc.field(one.column)
    if is_number:
        column = column.cast(pa.float64(), safe=False)
    if one.operator == "in":
        return reduce(or_, [column == literal for literal in literals])
    return _COMPARISONS[one.operator](column, literals[0])
