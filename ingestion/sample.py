"""Sample of the first rows of a log, with the unencoded values of all columns."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.errors import DataError
from shunter.ingestion.batch import Source
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding import times
from shunter.ingestion.encoding.canonical import merged_texts
from shunter.ingestion.fields import UTF_8
from shunter.ingestion.schema import EXAMPLE, Schema
from shunter.ingestion.sources.header import readable_columns
from shunter.ingestion.sources.recognise import likely_delimiter
from shunter.ingestion.sources.tabular import TableChunk, TableSource
from shunter.requests.source import CSV, FORMATS

MOST_ROWS = 200_000
MOST_COLUMNS = 5_000
_MOST_CELLS = 50_000_000


def sample_of(
    paths: tuple[Path, ...], data_format: str, delimiter: str | None = None, encoding: str = UTF_8
) -> tuple[pl.DataFrame, dict[str, str]]:
    """Read rows of a log from its first and its last file; an empty text is a missing value.

    Args:
        paths: Files of the log.
        data_format: General format of the files, other than Criteo's.
        delimiter: Delimiter of a CSV file; None to detect the delimiter by the header.
        encoding: Encoding of a CSV file.

    Returns:
        The rows as a table, and the reason by name of each column that cannot be read.

    Raises:
        DataError: A file cannot be read, or has too many columns.
    """
    if data_format == CSV and delimiter is None:
        delimiter = likely_delimiter(paths[0], encoding)
    tables: list[pl.DataFrame] = []
    left_out: dict[str, str] = {}
    chosen = (paths[0], paths[-1])[: len(paths)]
    for path in chosen:
        rows = 0
        source, of_file = _all_columns(path, data_format, {"delimiter": delimiter, "encoding": encoding})
        left_out |= of_file
        for chunk in source.chunks():
            tables.append(chunk.table)
            rows += len(chunk.table)
            if rows >= most_rows(len(chunk.table.columns)) // len(chosen):
                break
    table = pl.concat(tables, how="diagonal_relaxed") if tables else pl.DataFrame()
    texts = pl.DataFrame({column.name: read.as_text(column)[0] for column in table.get_columns()})
    names = [name for name, dtype in texts.schema.items() if dtype == pl.String]
    stripped = [pl.col(name).str.strip_chars() for name in names]
    return texts.with_columns(pl.when(text != "").then(text) for text in stripped), left_out


def most_rows(columns: int) -> int:
    """Return the number of rows to sample of a log with `columns` columns; a wider log gets fewer rows."""
    return min(MOST_ROWS, _MOST_CELLS // max(columns, 1))


def _all_columns(path: Path, data_format: str, written: dict[str, str | None]) -> tuple[TableSource, dict[str, str]]:
    """Return a source with every readable column of a file, and the reason by name of each unreadable column."""
    kind = FORMATS.load(data_format)
    plain = Schema.model_validate({"label": "label", "numeric": ["x"], **written})
    names, left_out = readable_columns(path, kind("log", plain, (path,)))
    if not 0 < len(names) <= MOST_COLUMNS:
        raise DataError(
            f"The file {path} has {len(names):,} readable columns, but a schema can be inferred only for 1 "
            f"to {MOST_COLUMNS:,}: write a schema that names the columns to learn from, such as "
            f"'{EXAMPLE}', and give it with --schema."
        )
    columns = {"label": names[0], "categorical": names[1:], **written}
    return kind("log", Schema.model_validate(columns), (path,)), left_out


def merged_in(source: Source) -> dict[str, tuple[str, ...]]:
    """Return, by column, two different texts from the first chunk of a log that are read as one value."""
    for chunk in islice(source.chunks(), 1):
        inner = chunk[-1] if isinstance(chunk, tuple) else chunk  # logs in several days or parts yield tuples
        if isinstance(inner, TableChunk):
            return merged_columns(inner.table, source.schema)
    return {}


def merged_columns(table: pl.DataFrame, schema: Schema) -> dict[str, tuple[str, ...]]:
    """Return, by column, two different texts of a table that are read as one value."""
    found = {
        field.column: merged_texts(read.as_text(table[field.column])[0])
        for field in schema.categorical
        if field.column in table.columns and field.buckets is None and schema.key_kind(field.column) == "value"
    }
    return {column: texts for column, texts in found.items() if texts}


@dataclass(frozen=True)
class ColumnProfile:
    """Profile of one column of a sample.

    Attributes:
        name: Name of the column.
        present: Number of rows with a value.
        distinct: Number of distinct values; for lists the number of rows with a value.
        values: float64 [rows], NaN where a value is missing or not a number; None if more than 1 % are not numbers.
        is_whole: Whether all numbers are integers.
        time_share: Share of the values that are dates, or numbers that are times since 1970, 0 to 1.
        separator: Separator of several values in one text; None for a column of single values.
        is_list: Whether the column holds lists.
        example: First value of the column, at most 30 characters.
    """

    name: str
    present: int
    distinct: int
    values: NDArray[np.float64] | None
    is_whole: bool
    time_share: float
    separator: str | None
    is_list: bool
    example: str


def profile_column(series: pl.Series) -> ColumnProfile:
    """Return the profile of a column."""
    present = series.drop_nulls()
    is_list = isinstance(series.dtype, pl.List | pl.Array)
    example = str(*present.head(1).to_list())[:30]
    if is_list or series.dtype.is_nested():
        return ColumnProfile(
            series.name,
            len(present),
            len(present),
            None,
            is_whole=False,
            time_share=0,
            separator=None,
            is_list=True,
            example=example,
        )
    is_time = isinstance(series.dtype, pl.Date | pl.Datetime)
    [(values, bad)] = read.amounts_of([series])
    are_numbers = not is_time and len(present) > 0 and bad.sum() <= 0.01 * len(present)
    seen = times.see(series).counts
    in_time = len(present) if is_time else seen.total() - seen["number"]
    known = values[~np.isnan(values)]
    return ColumnProfile(
        series.name,
        len(present),
        present.n_unique(),
        values if are_numbers else None,
        is_whole=are_numbers and bool((known == np.floor(known)).all()),
        time_share=in_time / max(len(present), 1),
        separator=None if are_numbers else _separator(present),
        is_list=False,
        example=example,
    )


def _separator(texts: pl.Series) -> str | None:
    """Return the separator of multi-valued texts; None if splitting does not leave far fewer distinct values."""
    if texts.dtype != pl.String or not len(texts):
        return None
    texts = texts.head(20_000)
    whole = texts.n_unique()
    # A bar or a semicolon is evidence enough; commas and blanks also occur in plain texts.
    for separator, fewer in (("|", 1.0), (";", 1.0), (",", 0.7), (" ", 0.7)):
        parts = texts.str.split(separator)
        values = parts.explode()
        if len(values) >= 1.3 * len(texts) and values.n_unique() <= fewer * whole:
            return separator
    return None
