"""Click log of several days: each day is read in its own format, the last day is held out, ids are extended."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
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
from shunter.ingestion.sources.addresses import local_path
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.open import source_of, with_loss
from shunter.ingestion.sources.tabular import TableSource
from shunter.models.spec import NumberLabel

Column = TypeVar("Column", bound=Categorical)


@dataclass(frozen=True)
class DayLog:
    """Files of one day.

    Attributes:
        day: Date of the log.
        source: Source that reads the columns of the schema available on this day.
        schema: Schema with all columns.
    """

    day: date
    source: Source
    schema: Schema

    def batches(self) -> Iterator[RawBatch]:
        """Yield the batches of the day in the order of its files; columns absent on this day have missing values."""
        for chunk in self.source.chunks():
            yield self.parse(chunk)

    def as_read_by(self, encoder: Encoder) -> "DayLog":
        """Return a copy that reads values in the canonical form of `encoder`, so that equal values get equal ids."""
        return self._with_schemas(partial(_in_form_of, encoder))

    def with_crosses_of(self, encoder: Encoder) -> "DayLog":
        """Return the log with the crosses of `encoder`, except crosses whose columns the day lacks."""
        if not isinstance(self.source, TableSource):
            return self
        names = [{*self.source.names(path)} for path in self.source.paths]
        crosses = {field.name: field.cross for field in encoder.categorical}
        there = {*names[0]}.intersection(*names)

        def with_crosses(schema: Schema) -> Schema:
            fields = []
            for field in schema.categorical:
                cross = crosses.get(field.field, field.cross)
                if cross == field.cross:
                    fields.append(field)
                elif {*(cross or (field.column,))} <= there:
                    fields.append(field.model_copy(update={"cross": cross}))
            return schema.model_copy(update={"categorical": tuple(fields)})

        return self._with_schemas(with_crosses)

    def _with_schemas(self, change: Callable[[Schema], Schema]) -> "DayLog":
        source = replace(self.source, schema=change(self.source.schema))  # pyright: ignore[reportArgumentType] - a dataclass
        return replace(self, source=source, schema=change(self.schema))

    def parse(self, chunk: Any) -> RawBatch:
        """Parse one chunk of the day's files."""
        batch = self.source.parse(chunk)
        if self.source.schema == self.schema:
            return batch
        return replace(batch, columns=arrange(batch.columns, self.source.schema, *_names(self.schema)))


def open_day(
    day: date,
    paths: Sequence[Path],
    data_format: str | None,
    schema_file: str | None,
    *,
    without: Collection[str] = (),
    where: str | None = None,
    loss: str | None = None,
) -> DayLog:
    """Open the files of one day; the time column is dropped, since the day is known.

    Args:
        day: Date of the log.
        paths: Files of the day.
        data_format: File format; None to detect the format by the names.
        schema_file: Schema file, see `shunter.ingestion.sources.open`.
        without: Features that this day lacks.
        where: Predicate on the rows, in addition to the `where` of the schema.
        loss: Requested loss, see `shunter.ingestion.sources.number_label`.

    Raises:
        DataError: The format is unknown, or the schema is missing, invalid, or names sequences or sessions that depend
            on other days.
        RequestError: The loss does not suit the label.
    """
    schema_file = schema_file and local_path(schema_file)
    source = source_of(day.isoformat(), tuple(paths), data_format, schema_file, where=where)
    source = with_loss(source, loss)
    if source.schema.sequences:
        raise DataError(f"The schema {schema_file} has `sequences`, which nightly runs do not support: leave them out.")
    if (sessions := source.schema.sessions) is not None and not sessions.within_day:
        raise DataError(
            f"The schema {schema_file} builds sessions, which may begin before the days that a nightly run "
            "reads: add `within_day: true` to `sessions`, or give a column of sessions."
        )
    schema = source.schema.without_time().model_copy(update={"part": None})
    if sessions is not None and sessions.by in without:
        without = {*without, *sessions.columns}
    left = schema.model_copy(
        update={
            "numeric": tuple(name for name in schema.numeric if name not in without),
            "categorical": tuple(field for field in schema.categorical if not {*field.columns} & {*without}),
            "multi_valued": tuple(field for field in schema.multi_valued if field.column not in without),
        }
    )
    return DayLog(day, replace(source, schema=left), schema)  # pyright: ignore[reportArgumentType] - a dataclass


def arrange(
    columns: Columns, schema: Schema, numeric: Sequence[str], single: Sequence[str], multi: Sequence[str]
) -> Columns:
    """Return columns in another order, with missing values for absent columns.

    Args:
        columns: Columns in the order of `schema`.
        schema: Schema of the columns.
        numeric: Wanted numeric columns.
        single: Wanted single-valued categorical columns.
        multi: Wanted multi-valued categorical columns.
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
    """Return columns in the order of `encoder`, which may be fitted to another schema."""
    return arrange(
        columns,
        schema,
        [field.name for field in encoder.numeric],
        [field.name for field in encoder.categorical if not field.multi_valued],
        [field.name for field in encoder.categorical if field.multi_valued],
    )


def _in_form_of(encoder: Encoder, schema: Schema) -> Schema:
    """Return a schema that reads values as an existing encoder did, so that equal values get equal ids.

    Columns that the encoder does not know are read as the given schema says.
    """
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
    """Source of the days of one training job.

    Attributes:
        name: Name of the data set.
        days: Days in order; at least one.
        held_out: Day of the test split; None to split all days by hash.
        base: Encoder to extend. Its numeric scales are reused, and new values are added to its vocabularies. None fits
            a new encoder.
        number: Loss and scale of a numeric label, reused from an earlier run; None computes the scale from the training
            split.
    """

    name: str
    days: tuple[DayLog, ...]
    held_out: date | None = None
    base: Encoder | None = None
    number: NumberLabel | None = None

    @property
    def schema(self) -> Schema:
        """Schema of the days."""
        return self.days[0].schema

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files of all days, in order."""
        return tuple(path for day in self.days for path in day.source.paths)

    @property
    def identity(self) -> str:
        """Text that identifies the files and columns of each day, the held-out day and the base encoder."""
        days = [
            (log.day.isoformat(), len(log.source.paths), log.source.identity, _names(log.source.schema))
            for log in self.days
        ]
        scale = "" if self.number is None else f":{self.number.to_dict()}"
        return f"days:{days}:{self.held_out}:{self.base.digest() if self.base else None}{scale}"

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Yield the readable units of all files, day after day."""
        for owner, day in enumerate(self.days):
            yield from (replace(unit, owner=owner) for unit in day.source.units(unit_bytes))

    def chunks(self, unit: Unit | None = None, budget: Budget | None = None) -> Iterator[tuple[DayLog, Any]]:
        """Yield the chunks of all days in order, or of one unit, each with its day."""
        for day in self.days if unit is None else [self.days[unit.owner]]:
            for chunk in day.source.chunks(unit, budget):
                yield day, chunk

    def parse(self, chunk: tuple[DayLog, Any]) -> RawBatch:
        """Parse a chunk; the time of its rows is the ordinal of the day."""
        day, inner = chunk
        batch = day.parse(inner)
        return replace(batch, times=np.full(len(batch.labels), float(day.day.toordinal())))

    def splitter(self, seed: int) -> Splitter:
        """Return a splitter by hash, with the held-out day as the test split if there is one."""
        by_hash = HashSplit.of(self.schema, seed)
        return by_hash if self.held_out is None else DaySplit(self.held_out, by_hash)


class DaySplit:
    """Splitter with one day as the test split; a hash assigns the rows of the other days to train or validation.

    A row is in validation if the hash split assigns it to validation. The hash covers the features, and the seed is
    that of the request. A validation row of one nightly run is therefore a validation row in every later one.
    """

    kind = "day"

    def __init__(self, held_out: date, by_hash: HashSplit) -> None:
        self._test_day = float(held_out.toordinal())
        self._by_hash = by_hash

    def assign(self, batch: RawBatch) -> NDArray[np.int8]:
        """Return the split of each row, int8 [rows]."""
        assert batch.times is not None
        parts = np.where(self._by_hash.assign(batch) == 1, np.int8(1), np.int8(0))
        parts[batch.times == self._test_day] = 2
        return parts
