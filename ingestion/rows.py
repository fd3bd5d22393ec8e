"""Raw rows of files in blocks of a fixed size, as input for scoring with a trained model."""

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import polars as pl

from shunter.errors import DataError
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.fields import UTF_8
from shunter.ingestion.sources.criteo import CATEGORICAL, NUMERIC
from shunter.ingestion.sources.files import read_blocks
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.open import check_listed_once, find_files, format_of_files, rows_source
from shunter.ingestion.sources.recognise import csv_delimiter, first_lines, header_of, likely_encoding
from shunter.ingestion.sources.tabular import CsvForm, TableChunk, TableSource, read_csv, without_blank_rows
from shunter.requests.source import CRITEO, CSV, PARQUET

ReadFile = Callable[[Path, Sequence[str], Sequence[str]], Iterator[pl.DataFrame]]


def read_rows(
    data: str | Path | Sequence[str],
    columns: Sequence[str],
    optional: Sequence[str],
    block_rows: int,
    data_format: str | None = None,
    *,
    encoding: str = UTF_8,
) -> Iterator[pl.DataFrame]:
    """Read files one after the other in blocks of rows; no block mixes rows of two files.

    Args:
        data: CSV, Parquet or Criteo files, as for `--data` of a training run: a file, a folder, a glob or a
            comma-separated list of these, or several of them. CSV and Criteo files may be compressed.
        columns: Columns to read.
        optional: Columns to read only if the file has them.
        block_rows: Rows of each block; the last block of a file may be shorter.
        data_format: File format; None to detect the format.
        encoding: Encoding of a CSV file that is not in UTF-8.

    Returns:
        Blocks with the unconverted columns, those of CSV as texts; blank lines are skipped.

    Raises:
        DataError: A file cannot be read, lacks a column, holds an unreadable line, or is given twice.
    """
    parts = [str(data)] if isinstance(data, str | Path) else data
    paths = tuple(path for part in parts for path in find_files(part, "FILE"))
    check_listed_once(paths, "FILE")
    read_file = _reader(paths, data_format, encoding)
    return chain.from_iterable(_in_blocks(read_file(path, columns, optional), block_rows) for path in paths)


def _reader(paths: tuple[Path, ...], data_format: str | None, encoding: str) -> ReadFile:
    data_format = format_of_files(paths, data_format)
    known: dict[str, ReadFile] = {CRITEO: _criteo, CSV: partial(_csv, encoding=encoding)}
    if data_format == PARQUET:
        return lambda path, columns, optional: _of_source(path, columns, optional, rows_source((path,), PARQUET), True)
    # One source for all files, since it reads the tables that it joins once.
    return known.get(data_format) or partial(_of_source, source=rows_source(paths, data_format), is_parquet=False)


def _of_source(
    path: Path, columns: Sequence[str], optional: Sequence[str], source: TableSource, is_parquet: bool
) -> Iterator[pl.DataFrame]:
    found = source.names(path)
    wanted = [*columns, *(name for name in optional if name in found)]
    for chunk in source.rows(path, wanted, Budget.of_settings(), whose="that the model reads"):
        yield chunk.table if is_parquet else _texts(without_blank_rows(_whole(chunk)), wanted)


def _csv(path: Path, columns: Sequence[str], optional: Sequence[str], encoding: str) -> Iterator[pl.DataFrame]:
    encoding = UTF_8 if encoding == UTF_8 else likely_encoding(path, encoding)
    delimiter = csv_delimiter(path, columns, encoding=encoding)
    header = header_of(first_lines(path, encoding)[0], delimiter)
    read.check_columns(path, header, columns, "that the model reads")
    count = Counter(header)
    wanted = [*columns, *(name for name in optional if name in count)]
    # All columns are read, since a line is blank only if every column is empty.
    once = [name for name in header if count[name] == 1]
    form = CsvForm(delimiter, tuple(header))
    for chunk in read_csv(path, once, form, Budget.of_settings(), encoding=encoding):
        yield _texts(without_blank_rows(_whole(chunk)), wanted)


def _criteo(path: Path, columns: Sequence[str], optional: Sequence[str]) -> Iterator[pl.DataFrame]:
    first = next((line for line in first_lines(path) if line), "")
    fields = ("label", *NUMERIC, *CATEGORICAL)
    names = fields[-1 - first.count("\t") :]  # a log to score may lack the label
    read.check_columns(path, names, columns, "that the model reads")
    begin = 1
    for text in read_blocks(path, budget=Budget.of_settings()):
        for line, row in enumerate(text.split(b"\n")[:-1], begin):
            tabs = row.count(b"\t")
            if tabs != len(names) - 1:
                raise _no_row(path, line, f"{tabs + 1} columns, expected {len(names)}")
        begin += text.count(b"\n")
        frame = pl.read_csv(
            io.BytesIO(text.replace(b"\r\n", b"\n")),
            separator="\t",
            has_header=False,
            new_columns=list(names),
            quote_char=None,
            infer_schema=False,
            encoding="utf8-lossy",
        )
        yield frame.select(*columns, *(name for name in optional if name in names))


def _whole(chunk: TableChunk) -> TableChunk:
    """Return the chunk; raise `DataError` if a line is unreadable, since every row must get a score, in order."""
    if chunk.rejected:
        raise _no_row(chunk.path, chunk.rejected[0].line, chunk.rejected[0].reason)
    return chunk


def _no_row(path: Path, line: int, reason: str) -> DataError:
    return DataError(f"Line {line} of {path} is not a row ({reason}): fix it, or leave it out.")


def _texts(chunk: TableChunk, columns: Sequence[str]) -> pl.DataFrame:
    return pl.DataFrame([read.lossy_text(chunk.table[name]) for name in columns])


def _in_blocks(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of the frames in frames of `rows` rows; the last frame may be shorter."""
    waiting: list[pl.DataFrame] = []
    count = 0
    for frame in frames:
        waiting.append(frame)
        count += frame.height
        if count < rows:
            continue
        whole = pl.concat(waiting)
        end = count - count % rows
        yield from whole[:end].iter_slices(rows)
        waiting, count = [whole[end:]], count - end
    if count:
        yield pl.concat(waiting)
