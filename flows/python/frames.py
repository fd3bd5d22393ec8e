"""Conversion of frames of pandas, polars, PyArrow and NumPy to files for ingestion, with exact types and digits."""

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from shunter.errors import ColumnError, RequestError, StorageError, first_line
from shunter.files import make_private
from shunter.settings import Settings

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

NAME = "frame"  # default name of the data
ROW_GROUP_ROWS = 1 << 17  # rows of a row group; several processes read the row groups of a large file


def is_path(data: Any) -> bool:
    """Return True if the data is a text or a path, and False if it is rows."""
    return isinstance(data, str | os.PathLike)


def table_of(frame: Any) -> "pa.Table":
    """Return the rows of a frame as an Arrow table.

    Args:
        frame: DataFrame of pandas or polars, LazyFrame, Arrow table or record batch, NumPy structured array, or another
            object with the Arrow PyCapsule interface.

    Raises:
        RequestError: The object is not a frame, or two columns have the same name.
        ColumnError: A column has values that Arrow cannot represent, such as both texts and numbers.
    """
    import numpy as np
    import pyarrow as pa

    if isinstance(frame, np.ndarray):
        if frame.dtype.names is None:
            raise RequestError("A NumPy array needs named columns: give a structured array or a DataFrame.")
        return _from_columns({name: frame[name] for name in frame.dtype.names})
    if _is_pandas(frame):
        names = [str(name) for name in frame.columns]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise RequestError(f"The frame has two columns {repeated}: rename one of them.")
        return _from_columns({name: frame.iloc[:, place] for place, name in enumerate(names)})
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if hasattr(frame, "collect"):  # the frame is a LazyFrame
        frame = frame.collect()
    if not hasattr(frame, "__arrow_c_stream__"):
        kind = type(frame).__name__
        raise RequestError(
            f"{kind} is not a supported frame: give a pandas, polars or PyArrow table, or a NumPy structured array."
        )
    try:
        return pa.table(frame)
    except (pa.ArrowException, TypeError) as error:
        raise RequestError(f"The frame cannot be read as an Arrow table ({first_line(error)}).") from error


def is_frame(value: Any) -> bool:
    """Return True for rows with named columns, False for a path or plain values."""
    named = ("columns", "column_names")
    return getattr(getattr(value, "dtype", None), "names", None) is not None or any(
        hasattr(type(value), name) for name in named
    )


def series_of(name: str, values: Any) -> "pl.Series":
    """Return a single value or any sequence of values as a column."""
    import numpy as np
    import polars as pl

    return pl.Series(name, np.atleast_1d(np.asarray(values)).tolist())


def polars_of(frame: Any) -> "pl.DataFrame":
    """Return the rows of a frame as a polars frame; for arguments and errors see `table_of`."""
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame
    found = pl.from_arrow(table_of(frame))
    assert isinstance(found, pl.DataFrame), "a table becomes a frame"
    return found


def index_of(frame: Any) -> Any:
    """Return the index of a pandas frame; None for other frames."""
    return frame.index if _is_pandas(frame) else None


def pandas_of(rows: Any) -> "pd.DataFrame":
    """Return rows, such as dictionaries, as a pandas frame."""
    import pandas as pd

    return pd.DataFrame(rows)


def store_frame(frame: Any, name: str = NAME) -> Path:
    """Write a frame to the home as Parquet, unless a file with equal content exists; return the file.

    Args:
        frame: Rows; see `table_of`.
        name: Name of the data, which is the name of the file too.

    Raises:
        StorageError: The home cannot be written to.
        RequestError: See `table_of`.
        ColumnError: See `table_of`, or Parquet does not support a type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    table = table_of(frame).replace_schema_metadata(None)
    plain = [field.name for field in table.schema if not pa.types.is_nested(field.type)]

    def write(path: Path) -> None:
        try:
            pa_parquet.write_table(table, path, row_group_size=ROW_GROUP_ROWS, use_dictionary=plain)  # pyright: ignore[reportArgumentType] - a bool or names
        except pa.ArrowException as error:
            raise ColumnError(_unwritten(table), "the frame", f"cannot be stored ({first_line(error)})") from error

    return _stored(f"{name}.parquet", write)


def schema_path(schema: Any) -> str:
    """Return the path of a schema that is given as a file, as YAML text, as a mapping, or as a `Schema`.

    Raises:
        StorageError: The home cannot be written to.
        RequestError: The schema has another type.
    """
    if isinstance(schema, os.PathLike) or (isinstance(schema, str) and "\n" not in schema):
        return os.fspath(schema)
    if isinstance(schema, BaseModel):
        schema = schema.model_dump(mode="json")
    if isinstance(schema, Mapping):
        schema = json.dumps(schema, indent=1)
    if not isinstance(schema, str):
        raise RequestError(f"{type(schema).__name__} is not a schema: give a file, a mapping, or the text of a schema.")
    text = schema
    return str(_stored("schema.yaml", lambda path: path.write_text(text, encoding="utf-8")))


def _stored(name: str, write: Callable[[Path], object]) -> Path:
    """Write a file to a folder named by the digest of the content; return the path of the file."""
    folder = Settings().frames_directory
    partial = folder / f"{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        make_private(folder)
        write(partial)
        with partial.open("rb") as file:
            target = folder / hashlib.file_digest(file, "sha256").hexdigest()[:32] / name
        target.parent.mkdir(exist_ok=True)
        return partial.replace(target)
    except OSError as error:
        raise StorageError(error.filename and str(error.filename), error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _is_pandas(frame: Any) -> bool:
    """Return True for a DataFrame of pandas, without importing pandas."""
    return any(kind.__module__.startswith("pandas") and kind.__name__ == "DataFrame" for kind in type(frame).__mro__)


def _from_columns(columns: Mapping[str, Any]) -> "pa.Table":
    import pyarrow as pa

    arrays = {}
    for name, values in columns.items():
        rows = list(values) if getattr(values, "ndim", 1) > 1 else values
        try:
            arrays[name] = pa.array(rows, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ColumnError(name, "the frame", f"holds values of no single type ({first_line(error)})") from error
    return pa.table(arrays)


def _unwritten(table: "pa.Table") -> str:
    """Return the name of the first column that Parquet cannot store."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    for name in table.schema.names:
        try:
            pa_parquet.write_table(table.select([name]).slice(0, 1), io.BytesIO())
        except pa.ArrowException:
            return name
    return table.schema.names[0]
