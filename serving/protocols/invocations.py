"""MLflow's scoring protocol: the requests and answers of `mlflow models serve` 3.17 at `/invocations`.

A body is JSON with one of `dataframe_split`, `dataframe_records`, `instances` and `inputs`, or CSV, or Parquet. Columns
that the model does not know are ignored, as in MLflow; a request without a column that the model needs is refused.
"""

import codecs
import io
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow.parquet import ParquetFile

from shunter.errors import DataError, first_line
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.parquet import read_batches
from shunter.serving.errors import MediaTypeError, RefusedError, TooLargeRequestError
from shunter.serving.protocols.body import (
    Unusable,
    expect,
    read_object,
    same_length,
    scores_by_name,
    to_json,
    top_of,
    unique,
)
from shunter.serving.table import Table, check_size, columns_of_records, columns_of_rows

JSON, CSV, PARQUET = "application/json", "text/csv", "application/vnd.apache.parquet"
FORMATS = ("dataframe_split", "dataframe_records", "instances", "inputs")
LARGEST_EXPANSION = 16  # largest number of decoded bytes per byte of the body
LEAST_BYTES = 16 << 20  # number of decoded bytes that is always allowed
LARGEST_FOOTER_BYTES = 4 << 20  # largest metadata of columns and row groups, which are decoded as a whole
_FOOTER_LENGTH = slice(-8, -4)  # position of the footer's length, before the magic number at the end


def read_table(body: bytes, content_type: str, max_rows: int) -> Table:
    """Parse the rows in the body of an MLflow scoring request.

    Raises:
        RefusedError: The body does not follow MLflow's protocol, or has too many rows.
    """
    kind, _, rest = content_type.partition(";")
    parameters = [part.strip().lower() for part in rest.split(";") if part.strip()]
    if any(parameter != "charset=utf-8" for parameter in parameters):
        raise MediaTypeError(
            f"The content type has the unsupported parameter {rest.strip()[:60]!r}: leave it out, or send "
            "charset=utf-8."
        )
    match kind.strip().lower():
        case "application/json":
            values = read_object(body)
            table = replace(_of_json(values), top=top_of(values.get("params"), "params"))
        case "text/csv":
            table = _of_frame(_csv(body, max_rows))
        case "application/vnd.apache.parquet":
            table = _of_frame(read_parquet(body, max_rows))
        case other:
            raise MediaTypeError(f"The content type {other[:60]!r} is not supported: send {JSON}, {CSV} or {PARQUET}.")
    check_size(table.rows, len(table.columns), max_rows)
    return table


def answer(scores: np.ndarray | pl.DataFrame, outputs: tuple[str, ...], unusable: Unusable) -> bytes:
    """Return MLflow's answer as JSON: a number or an object for each row, and the shares of unusable values."""
    if isinstance(scores, pl.DataFrame):
        predictions: Any = scores.to_dicts()
    elif scores.ndim == 1:
        predictions = scores
    else:
        named = {name: column.tolist() for name, column in scores_by_name(scores, outputs).items()}
        predictions = [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]
    return to_json({"predictions": predictions, **unusable})


def _of_json(values: dict[str, Any]) -> Table:
    given = [name for name in FORMATS if name in values]
    if len(given) != 1:
        raise RefusedError(
            f"The request body has {', '.join(given) or 'none'} of the keys {', '.join(FORMATS)}: send exactly "
            "one of them."
        )
    match given[0]:
        case "dataframe_split":
            return _of_split(expect(values["dataframe_split"], dict, "dataframe_split"))
        case "inputs" if isinstance(values["inputs"], dict):
            columns = values["inputs"]
            if not any(isinstance(column, list) for column in columns.values()):  # single values are one row
                return Table(1, {name: [value] for name, value in columns.items()})
            lists = {name: expect(column, list, name) for name, column in columns.items()}
            return Table(same_length(lists, "inputs"), lists)
        case name:
            records = expect(values[name], list, name)
            if not all(isinstance(record, dict) for record in records):
                raise RefusedError(
                    f"The key `{name}` holds a row that is not a JSON object: give each row as an object with column "
                    "names."
                )
            return Table(len(records), columns_of_records(records))


def _of_split(split: dict[str, Any]) -> Table:
    if strange := sorted(split.keys() - {"columns", "data", "index"}):
        raise RefusedError(
            f"`dataframe_split` has the unknown key {strange[0][:60]!r}: give columns, data and optionally index."
        )
    names = unique(expect(split.get("columns"), list, "columns"), "dataframe_split")
    rows = expect(split.get("data"), list, "data")
    if wrong := [place for place, row in enumerate(rows) if not isinstance(row, list) or len(row) != len(names)]:
        raise RefusedError(
            f"Row {wrong[0]} of `data` is not a list of {len(names)} values: give one value for each column."
        )
    return Table(len(rows), columns_of_rows(names, rows))


def _csv(body: bytes, max_rows: int) -> pl.DataFrame:
    """Read all values as text, as `shunter predict` does: 007 and 7 are different values."""
    header = body.removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")[0]
    check_size(0, header.count(b",") + 1, max_rows)
    try:
        if header.count(b'"') % 2:  # a name has a line break, so the column count of the first line would be too low
            raise pl.exceptions.ComputeError("the name of a column holds a line break")
        return pl.read_csv(io.BytesIO(body), infer_schema=False, raise_if_empty=True, n_rows=max_rows + 1)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"The request body cannot be read as CSV ({first_line(error)}): send a header and rows."
        ) from None


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
            budget = RequestBudget(max(LARGEST_EXPANSION * len(body), LEAST_BYTES), max_rows)
            with ParquetFile(stream, pre_buffer=False) as parquet:
                check_size(parquet.metadata.num_rows, parquet.metadata.num_columns, max_rows)
                schema = parquet.schema_arrow
                batches = read_batches(Path("the body"), parquet, stream, schema.names, budget)
                frame = pl.from_arrow(pa.Table.from_batches(batches, schema))
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, DataError) as error:
        raise RefusedError(
            f"The request body cannot be read as Parquet ({first_line(error)}): send a complete file."
        ) from None
    assert isinstance(frame, pl.DataFrame)
    return frame


def _of_frame(frame: pl.DataFrame) -> Table:
    return Table(frame.height, {name: frame[name] for name in frame.columns})
