"""Sources of CSV and Parquet files, read in batches with the columns that the schema names."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from shunter.errors import ColumnError, DataError
from shunter.files import path_of
from shunter.ingestion.batch import UNIT_BYTES, Bag, Columns, RawBatch, Rejection, TableChunk, Unit
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding import times
from shunter.ingestion.encoding.buckets import number_keys
from shunter.ingestion.encoding.frequent import RowFilter
from shunter.ingestion.encoding.labels import read_labels, read_weights
from shunter.ingestion.encoding.negatives import NegativeSampler
from shunter.ingestion.encoding.sessions import Sessions, UserTimes, fit_sessions, user_times
from shunter.ingestion.encoding.times import TimesSeen
from shunter.ingestion.fields import UTF_8, MultiValued
from shunter.ingestion.fields import Sequence as SequenceField
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.derived import Derived
from shunter.ingestion.sources.files import open_text
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.parquet import open_parquet, partitions_of, read_batches
from shunter.ingestion.sources.quoting import QuotedLines
from shunter.ingestion.sources.recognise import csv_delimiter, first_lines, header_of, likely_delimiter
from shunter.ingestion.sources.units import csv_units, parquet_units, text_units, whole_or
from shunter.ingestion.sources.where import chosen_rows, parsed, row_groups
from shunter.ingestion.time_format import AS_WRITTEN, TimeReading
from shunter.parallel import ordered_map

# Names of the splits in published logs, in lower case, and the index of each split.
PART_WORDS = {"train": 0, "training": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2, "testing": 2}
_NUMBER = "a finite number (or `decimal`, `thousands` or `missing` in the schema)"
_CSV_BLOCK_BYTES = 4 << 20
_LARGEST_BLOCK_BYTES = 32 << 20
_UNIT_SEPARATOR = b"\x1f"  # stands for a delimiter of several bytes, since the reader takes a single byte
_USUAL_COLUMNS = 64  # for wider files a block holds more bytes, since it would have too few rows otherwise


@dataclass(frozen=True)
class TableSource(ABC):
    """Source of files that hold a table; a subclass reads one file format."""

    name: str
    schema: Schema
    paths: tuple[Path, ...]
    identity: str = "table"
    reading: TimeReading = AS_WRITTEN
    sessions: Sessions | None = None
    row_filter: RowFilter | None = None
    negatives: NegativeSampler | None = None

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Yield units of the files in order."""
        return (unit for path in self.paths for unit in text_units(path, unit_bytes))

    @abstractmethod
    def header(self, path: Path) -> list[str]:
        """Return the names of the columns of a file, in their order."""

    @abstractmethod
    def tables(
        self, path: Path, columns: Sequence[str], budget: Budget, start: int = 0, end: int | None = None
    ) -> Iterator[TableChunk]:
        """Read some columns of a file in chunks of rows.

        Args:
            path: The file.
            columns: Names of the columns to read.
            budget: Budget that counts the bytes read.
            start: Start of the range to read, as in `Unit`; the lines of the chunks are counted from there.
            end: End of the range; None for the end of the file.

        Raises:
            DataError: The file cannot be read.
        """

    def chunks(self, unit: Unit | None = None, budget: Budget | None = None) -> Iterator[TableChunk]:
        """Yield the files, or one unit, in chunks of rows."""
        budget = budget or Budget.of_settings()
        for path, start, end in whole_or(unit, self.paths):
            yield from self.rows(path, self.schema.read_columns, budget, start, end)

    def names(self, path: Path) -> list[str]:
        """Return the names of the columns of a file, including those that the schema derives."""
        header = self.header(path)
        return self._derived.names(header) if self.schema.derives else header

    def rows(
        self,
        path: Path,
        columns: Sequence[str],
        budget: Budget,
        start: int = 0,
        end: int | None = None,
        *,
        whose: str = "of the schema",
    ) -> Iterator[TableChunk]:
        """Read some columns of a file in chunks of rows, including columns that the schema derives.

        A feature that is absent in this file but present in another file of the log has missing values in all rows.

        Raises:
            DataError: The file cannot be read, or lacks a column; `whose` completes the message about the column.
        """
        header, wanted, predicate = self.names(path), columns, parsed(self.schema.where)
        columns = [*dict.fromkeys((*columns, *self.schema.where_columns))]
        absent = read.absent_of(columns, header)
        unknown = [name for name in absent if name not in wanted]
        if unknown and (unknown := read.absent_of(unknown, self._any_names)):
            raise ColumnError(unknown[0], path, "is missing, but `where` compares it")
        users = {self.schema.user if self.schema.split.per_user else None}
        users |= {self.schema.sessions.by if self.schema.sessions is not None else None}
        if (
            absent
            and {*absent} <= {*self.schema.feature_columns, *self.schema.where_columns} - users
            and not read.absent_of(absent, self._any_names)
        ):
            present = [name for name in columns if name not in absent]  # other files have these features
        else:
            present, absent = columns, []
        read.check_columns(path, header, present, whose)
        held = (name if name in header else read.holder_of(name, header) or name for name in present)
        whole = list(dict.fromkeys(held))
        nothing = [pl.lit(None).alias(name) for name in absent]
        for chunk in self._whole_columns(path, whole, budget, start, end):
            parts = read.with_parts(chunk.table.to_dict(), present, path)
            table = chunk.table if parts.keys() == set(whole) else pl.DataFrame(parts)
            found = replace(chunk, table=table.with_columns(nothing))
            if predicate is not None:
                found = _chosen(found, chosen_rows(found.table, predicate, self.schema, path))
            yield replace(found, table=found.table.select(wanted)) if len(wanted) < len(columns) else found

    def _whole_columns(
        self, path: Path, columns: Sequence[str], budget: Budget, start: int, end: int | None
    ) -> Iterator[TableChunk]:
        if not self.schema.derives:
            yield from self.tables(path, columns, budget, start, end)
            return
        header = self.header(path)
        for chunk in self.tables(path, self._derived.needed(header, columns), budget, start, end):
            yield self._derived.add(chunk, header, columns)

    @cached_property
    def _any_names(self) -> frozenset[str]:
        return frozenset(name for path in self.paths for name in self.names(path))

    @cached_property
    def _derived(self) -> Derived:
        return Derived(self.schema, self.paths[0])

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone, without the joined tables, which each process reads for itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the fields."""
        for name, value in state.items():
            object.__setattr__(self, name, value)

    def parse(self, chunk: TableChunk) -> RawBatch:
        """Parse the columns of a chunk."""
        reading = self.reading
        if self.schema.session_columns:
            sessions, reading = self.found_sessions
            chunk = sessions.add_to(chunk, self.schema, reading)
        batch = parse_table(chunk, self.schema, reading)
        batch = batch if self.row_filter is None else self.row_filter.apply(batch, self.schema)
        return batch if self.negatives is None else self.negatives.apply(batch, self.schema)

    @cached_property
    def found_sessions(self) -> tuple[Sessions, TimeReading]:
        """Sessions of the log and the format of its times, found by a pass over user and time if they are not given.

        Raises:
            DataError: The files cannot be read, or their times are unclear or have no known unit.
        """
        return (self.sessions, self.reading) if self.sessions is not None else self.find_sessions()

    def find_sessions(self, max_bad_share: float = 0.01) -> tuple[Sessions, TimeReading]:
        """Find sessions and time format by a pass over user and time; a share `max_bad_share` may be unreadable."""
        schema, reading = self.schema, self.reading
        assert schema.time is not None, "the schema checks it"
        if schema.time_format is not None:
            reading = TimeReading(format=schema.time_format)
        pieces, seen = self._users_and_times(reading)
        if schema.time_format is None and (settled := seen.settle(schema.time, max_bad_share)) != reading:
            reading = settled
            pieces, _ = self._users_and_times(reading)
        return fit_sessions(schema, pieces, seen.microseconds_per_unit(reading), self.name), reading

    def _users_and_times(self, reading: TimeReading) -> tuple[list[UserTimes], TimesSeen]:
        schema = self.schema
        assert schema.sessions is not None
        assert schema.time is not None
        columns, time = [schema.sessions.by or "", schema.time], schema.time

        def read_chunk(chunk: TableChunk) -> tuple[UserTimes, TimesSeen]:
            return user_times(chunk, schema, reading), see_times(chunk, time)

        budget = Budget.of_settings()
        chunks = (chunk for path in self.paths for chunk in self.rows(path, columns, budget))
        found = list(ordered_map(read_chunk, chunks))
        return [piece for piece, _ in found], times.see_all([seen for _, seen in found])

    @classmethod
    def usual_schema(cls, paths: tuple[Path, ...]) -> dict[str, Any] | None:
        """Return the keys of the schema that the format itself implies; None if it implies none."""
        del paths
        return None


@dataclass(frozen=True)
class CsvSource(TableSource):
    """Source of CSV files with or without a header, plain or compressed; every column of a chunk holds raw bytes."""

    identity: str = "csv"

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Yield units of the files in order."""
        for path in self.paths:
            delimiter, header = csv_header(path, self.schema)
            if self.schema.quotes and len(delimiter) == 1:
                yield from csv_units(path, delimiter, len(header), unit_bytes)
            else:
                yield from text_units(path, unit_bytes)

    def header(self, path: Path) -> list[str]:
        """Return the names of the columns of a file, in their order."""
        return csv_header(path, self.schema)[1]

    def tables(
        self, path: Path, columns: Sequence[str], budget: Budget, start: int = 0, end: int | None = None
    ) -> Iterator[TableChunk]:
        """Read some columns of a file in chunks of rows, see `TableSource.tables`."""
        delimiter, header = csv_header(path, self.schema)
        form = CsvForm(delimiter, tuple(header), has_header=not self.schema.columns, has_quotes=self.schema.quotes)
        yield from read_csv(path, columns, form, budget, encoding=self.schema.encoding, start=start, end=end)

    def parse(self, chunk: TableChunk) -> RawBatch:
        """Parse the columns of a chunk."""
        return super().parse(without_blank_rows(chunk))


@dataclass(frozen=True)
class ParquetSource(TableSource):
    """Source of Parquet files."""

    identity: str = "parquet"

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Yield units of the files in order."""
        return (unit for path in self.paths for unit in parquet_units(path, unit_bytes))

    def header(self, path: Path) -> list[str]:
        """Return the names of the columns of a file, in their order."""
        with open_parquet(path) as (file, _):
            names = file.schema_arrow.names
        return [*names, *(name for name in partitions_of(path) if name not in names)]

    def tables(
        self, path: Path, columns: Sequence[str], budget: Budget, start: int = 0, end: int | None = None
    ) -> Iterator[TableChunk]:
        """Read some columns of a file in chunks of rows, see `TableSource.tables`."""
        row, numbers, skipped = 1, None, 0
        with open_parquet(path) as (file, stream):
            groups = None if end is None else range(start, end)
            if (predicate := parsed(self.schema.where)) is not None:
                whole = range(file.num_row_groups) if groups is None else groups
                groups = row_groups(path_of(stream), predicate, file.schema_arrow, whole)
                counts = [file.metadata.row_group(group).num_rows for group in whole]
                numbers = np.flatnonzero(np.repeat([group in groups for group in whole], counts)) + 1
                skipped = sum(file.metadata.row_group(group).num_rows for group in {*whole} - {*groups})
            size, own = path.stat().st_size, {*file.schema_arrow.names}
            fixed = {name: value for name, value in partitions_of(path).items() if name in {*columns} - own}
            wanted = [name for name in columns if name not in fixed]
            batches = read_batches(path, file, stream, wanted, budget, row_groups=groups)
            if skipped and not groups:  # the skipped rows are counted all the same
                batches = [pa.RecordBatch.from_pylist([], pa.schema([file.schema_arrow.field(one) for one in wanted]))]
            for batch in batches:
                frame = _frame(batch)
                if fixed:
                    given = [pl.Series(name, [value], pl.String) for name, value in fixed.items()]
                    repeated = [one.new_from_index(0, batch.num_rows) for one in given]
                    frame = pl.DataFrame([*frame.get_columns(), *repeated])
                lines = np.arange(row, row + batch.num_rows)
                yield TableChunk(path, frame, lines if numbers is None else numbers[lines - 1], [], left_out=skipped)
                row, skipped = row + batch.num_rows, 0
                budget.file_bytes += size * batch.num_rows // file.metadata.num_rows


@dataclass(frozen=True)
class CsvForm:
    """Form of a CSV file.

    Attributes:
        delimiter: Text between the columns.
        header: Names of all columns.
        has_header: Whether the first line holds the names.
        has_quotes: Whether values may be in double quotes.
        renames_header: Whether `header` replaces the names in the first line.
    """

    delimiter: str
    header: tuple[str, ...]
    has_header: bool = True
    has_quotes: bool = True
    renames_header: bool = False


def _chosen(chunk: TableChunk, chosen: pl.Series) -> TableChunk:
    """Return a chunk with the chosen rows; its `left_out` counts the other rows, except blank lines."""
    rows = chosen.to_numpy()
    others = without_blank_rows(replace(chunk, table=chunk.table.filter(~chosen), lines=chunk.lines[~rows]))
    left_out = chunk.left_out + len(others.lines)
    return replace(chunk, table=chunk.table.filter(chosen), lines=chunk.lines[rows], left_out=left_out)


def csv_header(path: Path, schema: Schema) -> tuple[str, list[str]]:
    """Return the delimiter of a CSV file and the names of its columns."""
    if schema.columns:
        delimiter = schema.delimiter or likely_delimiter(path, schema.encoding) or ","
        return delimiter, list(schema.columns)
    delimiter = csv_delimiter(path, schema.read_columns, schema.delimiter, schema.encoding)
    return delimiter, header_of(first_lines(path, schema.encoding)[0], delimiter)


def read_csv(
    path: Path,
    columns: Sequence[str],
    form: CsvForm,
    budget: Budget,
    *,
    encoding: str = UTF_8,
    start: int = 0,
    end: int | None = None,
) -> Iterator[TableChunk]:
    """Read some columns of a CSV file in blocks of rows, as bytes.

    Args:
        path: The file.
        columns: Names of the columns to read.
        form: Delimiter, names of all columns and quotes of the file.
        budget: Budget that counts the bytes read.
        encoding: Encoding of the file.
        start: Byte offset of the first record; the lines of the chunks are counted from there.
        end: Byte offset of the end of the last record; None for the end of the file.

    Raises:
        DataError: The file cannot be read as CSV.
    """
    block_bytes = min(_CSV_BLOCK_BYTES * max(1, len(form.header) // _USUAL_COLUMNS), _LARGEST_BLOCK_BYTES)
    with open_text(path, encoding, budget, start, end) as stream:
        text = stream
        if form.renames_header and not start:
            stream.readline()
        if form.renames_header or not form.has_header:
            text = cast("BinaryIO", _Behind(form.delimiter.join(form.header).encode() + b"\n", text))
        elif start:
            with open_text(path, encoding) as beginning:
                text = cast("BinaryIO", _Behind(beginning.readline(), text))
        delimiter = form.delimiter
        if len(delimiter) > 1:
            text = cast("BinaryIO", _Replaced(text, delimiter.encode(), _UNIT_SEPARATOR))
            delimiter = _UNIT_SEPARATOR.decode()
        quoted = QuotedLines(path, text, delimiter, len(form.header), has_quotes=form.has_quotes)
        for chunk in _csv_chunks(path, quoted, columns, delimiter, block_bytes, has_quotes=form.has_quotes):
            if start or not form.has_header:  # the lines are counted without the header line
                rejected = [replace(rejection, line=rejection.line - 1) for rejection in chunk.rejected]
                yield replace(chunk, lines=chunk.lines - 1, rejected=rejected)
            else:
                yield chunk


class _Behind:
    """Stream with additional bytes before the content of another stream."""

    def __init__(self, first: bytes, stream: BinaryIO) -> None:
        self._first, self._stream = first, stream

    def read(self, size: int) -> bytes:
        """Read `size` bytes, fewer at the end of the stream."""
        first, self._first = self._first, b""
        return first + self._stream.read(size - len(first)) if first else self._stream.read(size)


class _Replaced:
    """Stream of a text in which each delimiter of several bytes is replaced by a delimiter of one byte."""

    def __init__(self, stream: BinaryIO, delimiter: bytes, by: bytes) -> None:
        self._stream, self._delimiter, self._by, self._rest = stream, delimiter, by, b""

    def read(self, size: int) -> bytes:
        """Read about `size` bytes, none at the end of the stream."""
        while block := self._stream.read(size):
            text = self._rest + block
            end = text.rfind(b"\n") + 1
            self._rest = text[end:]
            if end:
                return text[:end].replace(self._delimiter, self._by)
        text, self._rest = self._rest, b""
        return text.replace(self._delimiter, self._by)


def without_blank_rows(chunk: TableChunk) -> TableChunk:
    """Return the chunk with nulls for empty texts and without blank lines, which are records without any value."""
    names = [name for name, dtype in chunk.table.schema.items() if dtype == pl.Binary]
    texts = chunk.table.with_columns(pl.when(pl.col(name).bin.size() > 0).then(pl.col(name)) for name in names)
    blank = texts.select(pl.all_horizontal(pl.all().is_null()))[:, 0]
    if not blank.any():
        return replace(chunk, table=texts)
    return replace(chunk, table=texts.filter(~blank), lines=chunk.lines[~blank.to_numpy()])


def _csv_chunks(
    path: Path, stream: QuotedLines, columns: Sequence[str], delimiter: str, block_bytes: int, *, has_quotes: bool
) -> Iterator[TableChunk]:
    malformed: dict[int, str] = {}

    def skip(row: pa_csv.InvalidRow) -> str:
        malformed[row.number] = f"{row.actual_columns} columns, expected {row.expected_columns}"
        return "skip"

    options = {
        "read_options": pa_csv.ReadOptions(use_threads=False, block_size=block_bytes),
        "parse_options": pa_csv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if has_quotes else False,
            newlines_in_values=has_quotes,
            ignore_empty_lines=False,
            invalid_row_handler=skip,
        ),
        "convert_options": pa_csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pa.large_binary()),
        ),
    }
    record = 2
    try:
        # The stream is buffered, since the reader takes the result of one read call as a block.
        for batch in pa_csv.open_csv(io.BufferedReader(stream, block_bytes), **options):
            # The reader numbers skipped records; the valid records have the remaining numbers in order.
            records = np.arange(record, record + batch.num_rows + len(malformed))
            records = records[~np.isin(records, list(malformed))][: batch.num_rows]
            record = int(records[-1]) + 1 if len(records) else record
            rejected = _take_rejections(path, stream, malformed, record)
            yield TableChunk(path, _frame(batch), stream.lines_of(records), rejected)
    except pa.ArrowInvalid as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".:")
        raise DataError(f"The file {path} cannot be read as CSV ({reason}): correct the file.") from error
    if rejected := _take_rejections(path, stream, malformed, None):
        empty = pl.DataFrame(schema=dict.fromkeys(columns, pl.Binary))
        yield TableChunk(path, empty, np.empty(0, np.int64), rejected)


def only_time(source: TableSource) -> TableSource:
    """Return the source reduced to the columns for finding the cut times: time, and columns of filter or user split."""
    schema = source.schema
    needed = {*schema.counted_columns, *([schema.user] if schema.split.per_user else [])}
    kept = tuple(field for field in schema.categorical if field.field in needed)
    features = {"numeric": (), "categorical": kept, "multi_valued": (), "sequences": ()}
    return replace(source, schema=source.schema.model_copy(update=features), negatives=None)


def see_times(chunk: TableChunk, column: str) -> TimesSeen:
    """Return the observed time formats of the time column of a chunk."""
    return times.see(read.as_text(chunk.table[column])[0])


def parse_table(chunk: TableChunk, schema: Schema, reading: TimeReading) -> RawBatch:
    """Parse the columns of `schema`, with times in the format of `reading`; reject rows with an unreadable value."""
    problems: list[tuple[read.Mask, str, str]] = []
    series: dict[str, pl.Series] = {}
    written: dict[str, pl.Series] = {}
    lists = {*(field.column for field in schema.bags), *schema.weights_of_values}
    columns = dict(zip(chunk.table.columns, chunk.table.get_columns(), strict=True))
    of_numbers = schema.number_columns
    for name in (*schema.read_columns, *schema.session_columns):
        if isinstance(columns[name].dtype, pl.List | pl.Array) and name not in lists:
            raise ColumnError(name, chunk.path, "holds lists: name it under `multi_valued` in the schema")
        written[name], invalid = read.as_text(columns[name])
        problems.append((invalid, name, "text in UTF-8 (or `encoding` in the schema)"))
        series[name] = read.in_usual_form(written[name], schema, is_number=name in of_numbers)
    labels, weights = read_labels(series, schema, problems), read_weights(series, schema, problems)
    moments = None
    if schema.time is not None:
        moments = times.moments(series[schema.time], reading)
        problems.append((np.isnan(moments), schema.time, reading.expected))
    parts = read_parts(series[schema.part], problems) if schema.part is not None else None
    numeric = np.empty((len(schema.numeric), len(labels)), np.float32)
    amounts = read.amount_reader(schema.value_form)
    for index, (values, bad) in enumerate(amounts([series[name] for name in schema.numeric])):
        numeric[index] = values
        problems.append((bad, schema.numeric[index], _NUMBER))
    keys = np.empty((len(schema.categorical), len(labels)), np.uint64)
    for index, field in enumerate(schema.categorical):
        if field.buckets is not None:
            [(values, bad)] = amounts([series[field.column]])
            problems.append((bad, field.column, _NUMBER))
            keys[index] = number_keys(values)
        elif field.cross:
            keys[index] = read.cross_keys([series[name] for name in field.cross], schema.key_kind(field.column))
        else:
            keys[index] = read.text_keys(series[field.column], schema.key_kind(field.column))
    bags = [_read_bags(series, field, schema.key_kind(field.column), problems) for field in schema.bags]
    columns = Columns(numeric, keys, bags)
    of_users = [sequence.by for sequence in schema.built_sequences if sequence.by]
    users = [read.text_keys(series[name], schema.key_kind(name)) for name in of_users]
    rejected, kept = _reject(chunk, written, problems)
    stacked = np.stack(users) if users else None
    batch = RawBatch(
        labels,
        columns,
        moments,
        rejected,
        users=stacked,
        weights=weights,
        parts=parts,
        unmatched=chunk.unmatched,
        left_out=chunk.left_out,
    )
    return batch if kept.all() else batch.select(kept)


def read_parts(series: pl.Series, problems: list[tuple[read.Mask, str, str]]) -> NDArray[np.int8]:
    """Return the split that a column names for each row, int8 [rows]; rows without a valid name go to `problems`."""
    words = series.cast(pl.String, strict=False).str.strip_chars().str.to_lowercase()
    numbers = words.replace_strict(PART_WORDS, default=None, return_dtype=pl.Int8)
    problems.append((numbers.is_null().to_numpy(), series.name, "train, validation or test"))
    return numbers.fill_null(0).to_numpy().astype(np.int8)


def _read_bags(
    series: Mapping[str, pl.Series],
    field: MultiValued,
    kind: read.KeyKind,
    problems: list[tuple[read.Mask, str, str]],
) -> Bag:
    """Return the bag of a multi-valued column, of a history the latest values; add bad weights to `problems`."""
    if field.weights is None:
        bag = read.bags(series[field.column], field.separator, kind)
        return bag.latest(field.length) if isinstance(field, SequenceField) else bag
    bag, bad = read.weighted_bags(series[field.column], series[field.weights], field.separator, kind)
    problems.append((bad, field.weights, f"a finite number for each value of {field.column}"))
    return bag


def _reject(
    chunk: TableChunk, series: dict[str, pl.Series], problems: list[tuple[read.Mask, str, str]]
) -> tuple[list[Rejection], read.Mask]:
    """Return a rejection with the first problem of each bad row, and the mask of the good rows."""
    kept = np.ones(len(chunk.lines), bool)
    rejected = list(chunk.rejected)
    for bad, name, expected in problems:
        for row in np.flatnonzero(bad & kept):
            value = series[name][int(row)]
            found = "missing" if value is None else repr(value if not isinstance(value, str) else value[:20])
            rejected.append(
                Rejection(str(chunk.path), int(chunk.lines[row]), f"{name} is {found}, expected {expected}")
            )
        kept &= ~bad
    return sorted(rejected, key=lambda rejection: rejection.line), kept


def _frame(batch: pa.RecordBatch) -> pl.DataFrame:
    wide = {
        name: pa.string()
        for name, kind in zip(batch.schema.names, batch.schema.types, strict=True)
        if pa.types.is_decimal256(kind)
    }
    if wide:
        batch = batch.cast(pa.schema([field.with_type(wide.get(field.name, field.type)) for field in batch.schema]))
    frame = pl.from_arrow(batch)
    assert isinstance(frame, pl.DataFrame)
    frame.columns = batch.schema.names  # a name may be empty: the index column of a file written by pandas
    return frame


def _take_rejections(path: Path, stream: QuotedLines, malformed: dict[int, str], before: int | None) -> list[Rejection]:
    """Return and remove the rejections before a record, or all rejections if `before` is None."""
    records = np.array([record for record in sorted(malformed) if before is None or record < before], np.int64)
    taken = [
        Rejection(str(path), int(line), malformed.pop(int(record)))
        for record, line in zip(records, stream.lines_of(records), strict=True)
    ]
    return taken + stream.take_rejected(None if before is None else int(stream.lines_of(np.array([before]))[0]))
