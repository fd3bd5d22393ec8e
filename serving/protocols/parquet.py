"""Parsing of Parquet bodies, whose decoded size is checked before memory is allocated."""

import tempfile
from io import BufferedReader
from pathlib import Path

import polars as pl
import pyarrow as pa
from pyarrow.parquet import ParquetFile

from shunter.errors import DataError, first_line
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.parquet import read_batches
from shunter.serving.errors import RefusedError, TooLargeRequestError
from shunter.serving.table import check_size

LARGEST_EXPANSION = 16  # largest number of decoded bytes per byte of the body
LEAST_BYTES = 16 << 20  # number of decoded bytes that is always allowed
LARGEST_FOOTER_BYTES = 4 << 20  # largest metadata of columns and row groups, which are decoded as a whole
_FOOTER_LENGTH = slice(-8, -4)  # position of the footer's length, before the magic number at the end


class RequestBudget(Budget):
    """Budget of bytes for the decoded rows of a request."""

    def check_bytes(self, count: int, name: object) -> None:
        """Raise `TooLargeRequestError` if `count` more bytes exceed the budget."""
        if self.max_bytes is not None and self.bytes_read + count > self.max_bytes:
            raise TooLargeRequestError(
                f"The Parquet file has more than {self.max_bytes:,} bytes, decoded: send several requests, "
                "or use `shunter predict` for a file."
            )


def read_parquet(body: bytes, max_rows: int) -> pl.DataFrame:
    """Read the rows of a Parquet file.

    Args:
        body: Content of the file.
        max_rows: Largest number of rows.

    Raises:
        RefusedError: The file is not complete, valid Parquet.
        TooLargeRequestError: The file has too many rows or columns, or decodes to far more bytes than its size.
    """
    try:
        if int.from_bytes(body[_FOOTER_LENGTH], "little") > LARGEST_FOOTER_BYTES:
            raise DataError("the footer of the Parquet file is too large")
        with tempfile.TemporaryFile() as file, open(file.fileno(), "rb", closefd=False) as stream:
            file.write(body)
            file.flush()
            return _read(stream, max_rows, RequestBudget(max(LARGEST_EXPANSION * len(body), LEAST_BYTES), max_rows))
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, DataError) as error:
        raise RefusedError(
            f"The request body cannot be read as Parquet ({first_line(error)}): send a complete file."
        ) from None


def _read(body: BufferedReader, max_rows: int, budget: Budget) -> pl.DataFrame:
    with ParquetFile(body, pre_buffer=False) as file:
        check_size(file.metadata.num_rows, file.metadata.num_columns, max_rows)
        schema = file.schema_arrow
        batches = read_batches(Path("the body"), file, body, schema.names, budget)
        frame = pl.from_arrow(pa.Table.from_batches(batches, schema))
    assert isinstance(frame, pl.DataFrame)
    return frame
