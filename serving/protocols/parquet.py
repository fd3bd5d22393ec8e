"""Bodies in Parquet, which may say much in few bytes: what a file comes to is known before memory is taken for it."""

from typing import TYPE_CHECKING, Any

import polars as pl

from shunter.errors import first_line
from shunter.serving.errors import RefusedError, TooLargeRequestError

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_EXPANSION = 16  # bytes in memory over those of the body
LEAST_BYTES = 16 << 20  # which a file may always come to
VALUE_BYTES = 8  # of a value, or of the place of a text


def read_parquet(body: bytes, max_rows: int) -> pl.DataFrame:
    """The rows of a file.

    Args:
        body: The file.
        max_rows: Most rows that it may have.

    Raises:
        RefusedError: It is no whole file.
        TooLargeRequestError: It has more rows, or comes to far more bytes than it has.
    """
    import pyarrow as pa

    try:
        frame = pl.from_arrow(_read(body, max_rows))
    except (pa.ArrowException, OSError) as error:
        raise RefusedError(f"The body cannot be read as Parquet ({first_line(error)}): send a whole file.") from None
    assert isinstance(frame, pl.DataFrame)
    return frame


def _read(body: bytes, max_rows: int) -> "pa.Table":
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    plain = ParquetFile(pa.BufferReader(body))
    found, most_bytes = plain.metadata, max(LARGEST_EXPANSION * len(body), LEAST_BYTES)
    groups = [found.row_group(place) for place in range(found.num_row_groups)]
    values = sum(group.column(place).num_values for group in groups for place in range(group.num_columns))
    told = max(sum(group.total_byte_size for group in groups), VALUE_BYTES * values)
    if found.num_rows > max_rows or told > most_bytes:
        raise _too_large(found.num_rows, told, max_rows)
    # A text that comes often stands once in the file, and stays so until it is known what all of them come to.
    leaves = map(found.schema.column, range(found.num_columns))
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    table = ParquetFile(pa.BufferReader(body), read_dictionary=texts).read()
    size = sum(_text_bytes(chunk) for column in table.columns for chunk in column.chunks)
    if size > most_bytes:
        raise _too_large(found.num_rows, size, max_rows)
    return table.cast(plain.schema_arrow)


def _too_large(rows: int, size: int, max_rows: int) -> TooLargeRequestError:
    return TooLargeRequestError(
        f"The file has {rows:,} rows of {size:,} bytes, at most {max_rows:,} rows are scored at once: send several "
        "requests, or use `shunter predict` for a file."
    )


def _text_bytes(values: Any) -> int:
    """What texts that stand once each come to where each stands by itself, those in lists too."""
    import pyarrow as pa
    from pyarrow import compute

    functions: Any = compute  # which it makes as it is imported
    kind = values.type
    if pa.types.is_struct(kind):
        return sum(map(_text_bytes, values.flatten()))
    if pa.types.is_nested(kind):
        return _text_bytes(values.flatten())
    if not pa.types.is_dictionary(kind) or not (
        pa.types.is_string(kind.value_type) or pa.types.is_binary(kind.value_type)
    ):
        return 0
    lengths = functions.cast(functions.binary_length(values.dictionary), pa.int64())
    return functions.sum(lengths.take(values.indices)).as_py() or 0
