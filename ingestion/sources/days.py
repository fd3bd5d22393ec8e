"""Several days of a click log as one: each read as it was written, the last one held out, ids that live on."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shunter.errors import DataError
from shunter.ingestion.batch import MISSING_KEY, UNIT_BYTES, Bag, Columns, RawBatch, Source, Unit
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.split import HashSplit, Splitter
from shunter.ingestion.fields import Categorical
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.open import source_of
from shunter.requests import DataFormat

Column = TypeVar("Column", bound=Categorical)


@dataclass(frozen=True)
class DayLog:
    """The files of one day.

    Attributes:
        day: The date.
        source: Reads those columns of the schema that the day has.
        schema: All columns.
    """

    day: date
    source: Source
    schema: Schema

    def batches(self) -> Iterator[RawBatch]:
        """Read the day in the order of its files, with missing values in the columns that it does not have."""
        for chunk in self.source.chunks():
            yield self.parse(chunk)

    def as_read_by(self, encoder: Encoder) -> "DayLog":
        """Return the same log, with values in the canonical form of `encoder`."""
        source = replace(self.source, schema=_in_form_of(encoder, self.source.schema))  # pyright: ignore[reportArgumentType] - a dataclass
        return replace(self, source=source, schema=_in_form_of(encoder, self.schema))

    def parse(self, chunk: Any) -> RawBatch:
        """Read one chunk of `source`."""
        batch = self.source.parse(chunk)
        if self.source.schema == self.schema:
            return batch
        return replace(batch, columns=arrange(batch.columns, self.source.schema, *_names(self.schema)))


def open_day(
    day: date,
    paths: Sequence[Path],
    data_format: DataFormat | None,
    schema_file: str | None,
    *,
    without: Collection[str] = (),
) -> DayLog:
    """Open the files of one day; a time column is not needed, for the day is known.

    Args:
        day: The date.
        paths: Its files.
        data_format: None to guess it from the names.
        schema_file: Schema file, see `shunter.ingestion.sources.open`.
        without: Features that this day lacks.

    Raises:
        DataError: The format is not known, or the schema is missing, wrong or names sequences.
    """
    source = source_of(day.isoformat(), tuple(paths), data_format, schema_file)
    if source.schema.sequences:
        raise DataError(
            f"The schema {schema_file} names sequences, which are not read day by day: leave `sequences` out."
        )
    schema = source.schema.model_copy(update={"time": None, "part": None})
    left = schema.model_copy(
        update={
            "numeric": tuple(name for name in schema.numeric if name not in without),
            "categorical": tuple(field for field in schema.categorical if field.column not in without),
            "multi_valued": tuple(field for field in schema.multi_valued if field.column not in without),
        }
    )
    return DayLog(day, replace(source, schema=left), schema)  # pyright: ignore[reportArgumentType] - a dataclass


def arrange(
    columns: Columns, schema: Schema, numeric: Sequence[str], single: Sequence[str], multi: Sequence[str]
) -> Columns:
    """Give columns in another order, with missing values for those that are not there.

    Args:
        columns: Columns in the order of `schema`.
        schema: Schema of the columns.
        numeric: Wanted numeric columns.
        single: Wanted categorical columns of one value a row.
        multi: Wanted categorical columns of any number of values.
    """
    rows = columns.rows
    here_numeric, here_single, here_multi = (
        dict(zip(names, range(len(names)), strict=True)) for names in _names(schema)
    )
    numbers = np.full((len(numeric), rows), np.nan, np.float32)
    keys = np.full((len(single), rows), MISSING_KEY, np.uint64)
    for place, name in enumerate(numeric):
        if name in here_numeric:
            numbers[place] = columns.numeric[here_numeric[name]]
    for place, name in enumerate(single):
        if name in here_single:
            keys[place] = columns.keys[here_single[name]]
    empty = Bag(np.empty(0, np.uint64), np.zeros(rows + 1, np.int64))
    bags = [columns.bags[here_multi[name]] if name in here_multi else empty for name in multi]
    return Columns(numbers, keys, bags)


def arrange_for(encoder: Encoder, columns: Columns, schema: Schema) -> Columns:
    """Give columns as `encoder` takes them, which may have been fitted to another schema."""
    return arrange(
        columns,
        schema,
        [field.name for field in encoder.numeric],
        [field.name for field in encoder.categorical if not field.multi_valued],
        [field.name for field in encoder.categorical if field.multi_valued],
    )


def _in_form_of(encoder: Encoder, schema: Schema) -> Schema:
    """Return a schema whose columns are texts or values as they are to an encoder; others stay as they are."""
    is_text = {field.name: field.key_kind == "written" for field in encoder.categorical}

    def in_form(field: Column) -> Column:
        return field.model_copy(update={"text": is_text.get(field.column, field.text)})

    return schema.model_copy(
        update={
            "value_form": encoder.form,
            "categorical": tuple(map(in_form, schema.categorical)),
            "multi_valued": tuple(map(in_form, schema.multi_valued)),
        }
    )


def _names(schema: Schema) -> tuple[list[str], list[str], list[str]]:
    return (
        list(schema.numeric),
        [field.field for field in schema.categorical],
        [field.column for field in schema.multi_valued],
    )


@dataclass(frozen=True)
class DaysSource:
    """The days of one training.

    Attributes:
        name: Name of the data set.
        days: Days in their order; at least one.
        held_out: The day that becomes the test part; None splits all days by hash.
        base: An encoder whose values keep their ids' meaning: its numeric scales are taken over, and its vocabularies
            are extended by the new values instead of being replaced; None fits a new one.
    """

    name: str
    days: tuple[DayLog, ...]
    held_out: date | None = None
    base: Encoder | None = None

    @property
    def schema(self) -> Schema:
        """Which column is what."""
        return self.days[0].schema

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of all days."""
        return tuple(path for day in self.days for path in day.source.paths)

    @property
    def identity(self) -> str:
        """Which file is of which day and lacks which columns, the day held out, and the encoder extended."""
        days = [
            (log.day.isoformat(), len(log.source.paths), log.source.identity, _names(log.source.schema))
            for log in self.days
        ]
        return f"days:{days}:{self.held_out}:{self.base.digest() if self.base else None}"

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Parts of the files, those of one day after the other."""
        for owner, day in enumerate(self.days):
            yield from (replace(unit, owner=owner) for unit in day.source.units(unit_bytes))

    def chunks(self, unit: Unit | None = None, budget: Budget | None = None) -> Iterator[tuple[DayLog, Any]]:
        """Read one day after the other, or a unit."""
        for day in self.days if unit is None else [self.days[unit.owner]]:
            for chunk in day.source.chunks(unit, budget):
                yield day, chunk

    def parse(self, chunk: tuple[DayLog, Any]) -> RawBatch:
        """Read the columns of a chunk; its time is the number of its day."""
        day, inner = chunk
        batch = day.parse(inner)
        return replace(batch, times=np.full(len(batch.labels), float(day.day.toordinal())))

    def splitter(self, seed: int) -> Splitter:
        """By hash, and the day held out by its date."""
        by_hash = HashSplit.of(self.schema, seed)
        return by_hash if self.held_out is None else DaySplit(self.held_out, by_hash)


class DaySplit:
    """Tests on one day; of the others what a split by hash would validate on is validated on, the rest learned.

    The hash is of the features and the seed is that of the request, so that what is kept back for validation in one
    night is kept back in every other night that reads the same row.
    """

    kind = "day"

    def __init__(self, held_out: date, by_hash: HashSplit) -> None:
        self._test_day = float(held_out.toordinal())
        self._by_hash = by_hash

    def assign(self, batch: RawBatch) -> NDArray[np.int8]:
        """Part of each row, int8 [rows]."""
        assert batch.times is not None
        parts = np.where(self._by_hash.assign(batch) == 1, np.int8(1), np.int8(0))
        parts[batch.times == self._test_day] = 2
        return parts
