"""Reader of Parquet files with a size limit that is checked before decoding, against decompression bombs.

The sizes in the metadata of a file may be false. The header of every page is therefore read, since the page headers
determine the memory of the decoder. Dictionary-encoded texts stay encoded until their total length is counted.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pa_parquet

from shunter.errors import ColumnError, DataError
from shunter.files import path_of
from shunter.ingestion.sources.addresses import located
from shunter.ingestion.sources.guard import Budget, open_checked

BATCH_ROWS = 65_536
_LARGEST_HEADER_BYTES = 16 << 20  # as in the decoder
_FIRST_READ_BYTES = 512
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_DELTA_BYTE_ARRAY = 7
_TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
Kind = Literal["number", "text", "time", "list", "other", "empty"]
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_KEPT = {0, 2, 8}  # Parquet encodings that are kept: plain and dictionaries


@contextmanager
def open_parquet(path: Path) -> Iterator[tuple[pa_parquet.ParquetFile, io.BufferedReader]]:
    """Open a file; file and stream refer to the same opened file even if the path is replaced.

    Raises:
        DataError: The file cannot be read or is no Parquet file, on opening or within the block.
    """
    try:
        with (
            open_checked(path) as stream,
            # Without a buffer each column of a row group would be read completely.
            pa_parquet.ParquetFile(path_of(stream), buffer_size=1 << 20, pre_buffer=False) as file,
        ):
            yield file, stream
    except (pa.ArrowException, OSError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = (text.splitlines() or [type(error).__name__])[0].rstrip(".:")
        raise DataError(f"The file {path} cannot be read as Parquet ({reason}): write it again.") from error


def partitions_of(path: Path) -> dict[str, str | None]:
    """Return the values of the columns in the names of a file's folders, such as `day=2026-03-01`."""
    pairs = (part.partition("=") for part in located(path).parts[:-1])
    return {name: None if value == _NULL_PARTITION else unquote(value) for name, mark, value in pairs if name and mark}


def kind_of(column: pa.DataType) -> Kind:
    """Return the kind of a column: single values or lists; `other` for unsupported types such as a map."""
    types = pa.types
    if isinstance(column, pa.DictionaryType):
        return kind_of(column.value_type)
    if types.is_null(column):
        return "empty"
    if types.is_integer(column) or types.is_floating(column) or types.is_boolean(column) or types.is_decimal(column):
        return "number"
    if isinstance(column, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return "list" if kind_of(column.value_type) not in ("list", "other") else "other"
    if types.is_temporal(column) and not types.is_interval(column):
        return "time"
    return "text" if column in _TEXTS or types.is_fixed_size_binary(column) else "other"


def flat_types(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Return names and types of all columns; fields of a struct have dotted names."""
    found = []
    for field in schema:
        if isinstance(field.type, pa.StructType) and field.type.num_fields:
            found += [(f"{field.name}.{name}", kind) for name, kind in flat_types(pa.schema(list(field.type)))]
        else:
            found.append((field.name, field.type))
    return found


def read_batches(
    path: Path,
    file: pa_parquet.ParquetFile,
    stream: io.BufferedReader,
    columns: Sequence[str],
    budget: Budget,
    *,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode columns in batches of rows; decoded bytes are counted before texts are expanded in memory.

    Args:
        path: Path of the file, for error messages.
        file: The Parquet file.
        stream: Stream of the same file.
        columns: Names of the columns to read.
        budget: Budget that counts the decoded bytes.
        row_groups: Indices of the row groups to read; None for all row groups.

    Raises:
        ColumnError: A column holds maps, or lists of lists or structs.
        DataError: The columns exceed the budget, or the file is damaged.
    """
    for field in map(file.schema_arrow.field, columns):
        if not isinstance(field.type, pa.StructType) and kind_of(field.type) == "other":
            raise ColumnError(field.name, path, f"holds {str(field.type)[:60]}: leave it out of the schema")
    if budget.max_bytes is None:
        yield from file.iter_batches(BATCH_ROWS, row_groups=row_groups, columns=list(columns))
        return
    numbers = range(file.num_row_groups) if row_groups is None else row_groups
    groups = {number: _chunks(path, file, stream, number, columns) for number in numbers}
    budget.check_bytes(sum(chunk.bytes for chunks in groups.values() for chunk in chunks), path)
    for number, chunks in groups.items():
        rows = _rows_at_once(path, chunks, budget.max_bytes)
        texts = sorted({chunk.column for chunk in chunks if chunk.is_compact})
        with pa_parquet.ParquetFile(path_of(stream), buffer_size=1 << 20, read_dictionary=texts or None) as compact:
            for batch in compact.iter_batches(rows, row_groups=[number], columns=list(columns)):
                budget.take_bytes(sum(map(_decoded_bytes, batch.columns)), path)
                yield batch.cast(pa.schema([file.schema_arrow.field(name) for name in batch.schema.names]))


@dataclass(frozen=True)
class _Chunk:
    """Column chunk as described by its page headers.

    Attributes:
        column: Path of the column.
        is_compact: Whether the values are read dictionary-encoded, with each text once.
        is_list: Whether a row may have several values.
        bytes: Lower bound of the decoded size in bytes.
        values: Number of values.
        longest: Largest decoded size of one value in bytes, if decoding expands the values; 0 if it does not.
    """

    column: str
    is_compact: bool
    is_list: bool
    bytes: int
    values: int
    longest: int


def _chunks(
    path: Path, file: pa_parquet.ParquetFile, stream: io.BufferedReader, number: int, columns: Sequence[str]
) -> list[_Chunk]:
    """Return the column chunks of the columns in a row group."""
    group, starts = file.metadata.row_group(number), tuple(f"{name}." for name in columns)
    found = []
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema in columns or chunk.path_in_schema.startswith(starts):
            try:
                found.append(_chunk(stream, chunk, file.metadata.schema.column(index)))
            except (IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
                raise DataError(
                    f"The file {path} cannot be read as Parquet (a page of column {chunk.path_in_schema} "
                    "is damaged): write it again."
                ) from error
    return found


def _chunk(stream: io.BufferedReader, chunk: Any, described: Any) -> _Chunk:
    """Describe a column chunk by its page headers (and, if texts are expanded, by its dictionary)."""
    at = chunk.data_page_offset
    if chunk.dictionary_page_offset and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end, kind = at + chunk.total_compressed_size, chunk.physical_type
    width = described.length if kind == "FIXED_LEN_BYTE_ARRAY" else _VALUE_BYTES[kind]
    is_list, is_text = described.max_repetition_level > 0, kind == "BYTE_ARRAY"
    decoded = values = longest = 0
    encodings, dictionary = set(), None
    while at < end and values < chunk.num_values:
        header, length = _read_header(stream, at)
        size, compressed = header[2], header[3]
        page = header.get(5) or header.get(8) or {1: 0}
        if min(size, compressed, page[1]) < 0:
            raise ValueError("a negative size")
        decoded += max(size, page[1] * width)
        values += page[1]
        if 7 in header:
            dictionary = at + length, compressed, size
        else:
            encodings.add(page.get(4 if 8 in header else 2))
        if _DELTA_BYTE_ARRAY in encodings:
            longest = max(longest, size)
        at += length + compressed
    # Texts can stay dictionary-encoded; in lists only if all pages have one encoding.
    is_compact = is_text and encodings <= _KEPT and not (is_list and dictionary and len(encodings) > 1)
    if is_text and dictionary and not is_compact:
        longest = max(longest, _longest_in(stream, chunk.compression, *dictionary))
    return _Chunk(chunk.path_in_schema, is_compact, is_list, decoded, values, longest)


def _longest_in(stream: io.BufferedReader, compression: str, at: int, compressed: int, size: int) -> int:
    """Return the length in bytes of the longest text in a dictionary."""
    stream.seek(at)
    data = stream.read(compressed)
    if compression != "UNCOMPRESSED":
        codec = pa.Codec({"LZ4": "lz4_raw"}.get(compression, compression.lower()))
        data = codec.decompress(data, size, asbytes=True)
    place = longest = 0
    while place + 4 <= len(data):
        length = int.from_bytes(data[place : place + 4], "little")
        longest, place = max(longest, length), place + 4 + length
    return longest


def _rows_at_once(path: Path, chunks: list[_Chunk], most_bytes: int) -> int:
    """Return the number of rows per batch for which expanded values stay within `most_bytes`."""
    rows = BATCH_ROWS
    for chunk in chunks:
        if chunk.longest and chunk.is_list and chunk.longest * chunk.values > most_bytes:
            raise DataError(
                f"The list column {chunk.column} of {path} may need unlimited memory, because its texts "
                "are dictionary or delta encoded: write the file again with plain encoding."
            )
        if chunk.longest:
            rows = min(rows, max(1, most_bytes // chunk.longest))
    return rows


def _decoded_bytes(column: pa.Array) -> int:
    """Return the size in bytes of a column with every value expanded."""
    if isinstance(column.type, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return column.nbytes - column.values.nbytes + _decoded_bytes(column.values)
    if isinstance(column, pa.DictionaryArray):
        kind = column.type.value_type
        if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
            lengths = pc.take(pc.call_function("binary_length", [column.dictionary]).cast(pa.int64()), column.indices)
            return (pc.call_function("sum", [lengths]).as_py() or 0) + 4 * len(column)
    return column.nbytes


def _read_header(stream: io.BufferedReader, at: int) -> tuple[dict[int, Any], int]:
    """Return the fields of the page header at a byte offset, and the length of the header in bytes."""
    size = _FIRST_READ_BYTES
    while True:
        stream.seek(at)
        data = stream.read(size)
        thrift = _Thrift(data)
        try:
            return thrift.struct(), thrift.at
        except IndexError:
            if len(data) < size or size >= _LARGEST_HEADER_BYTES:
                raise
            size *= 8


class _Thrift:
    """Parser of Thrift's compact protocol for page headers: integers are returned, other values are skipped."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (1, 2):  # a boolean, whose value is the kind itself
            return None
        if kind in (4, 5, 6):
            return self._number()
        if kind == 12:
            return self.struct()
        if kind in (9, 10):
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 15 else head >> 4):
                self._value(3 if head & 15 in (1, 2) else head & 15)
            return None
        if kind not in (3, 7, 8):
            raise ValueError("an unknown kind")
        skipped = self._varint() if kind == 8 else {3: 1, 7: 8}[kind]  # reading the size moves the position too
        self.at += skipped
        if self.at > len(self.data):
            raise IndexError
        return None

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > 63:
                raise ValueError("a number without end")

    def _number(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)
