"""Division of a log into units that can be read independently on any core or machine."""

import mmap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from shunter.ingestion.batch import Rejection, Unit
from shunter.ingestion.sources.files import BLOCK_BYTES, LONGEST_LINE_BYTES, is_plain, open_text
from shunter.ingestion.sources.guard import open_checked
from shunter.ingestion.sources.parquet import open_parquet
from shunter.ingestion.sources.quoting import QuotedLines

_LOOK_BACK_BYTES = 1 << 16


def text_units(path: Path, unit_bytes: int) -> Iterator[Unit]:
    """Yield units of a text, cut at the last line end before each multiple of `unit_bytes`; an archive is one unit."""
    size = path.stat().st_size
    if size <= unit_bytes or not is_plain(path):
        yield Unit(path)
        return
    start = 0
    with open_checked(path) as stream:
        for wanted in range(unit_bytes, size, unit_bytes):
            end = _behind_last_newline(stream, start, wanted)
            if end > start:
                yield _text_unit(path, start, end)
                start = end
    yield _text_unit(path, start, None)


def csv_units(path: Path, delimiter: str, columns: int, unit_bytes: int) -> Iterator[Unit]:
    """Yield units of a CSV file, cut between records.

    A quoted value may hold line ends. A file with quotes is therefore read up to each cut to find out whether a quote
    is open. This scan is several times faster than parsing the values, which starts with the first unit.

    Args:
        path: Path of the file.
        delimiter: Delimiter of the columns.
        columns: Number of columns in the header.
        unit_bytes: Approximate size of a unit in bytes.
    """
    size = path.stat().st_size
    if size <= unit_bytes or not is_plain(path) or not _has_quotes(path):
        yield from text_units(path, unit_bytes)
        return
    start = 0
    with open_text(path) as stream:
        for boundary in QuotedLines(path, stream, delimiter, columns).boundaries(unit_bytes):
            if start + unit_bytes <= boundary < size:
                yield _text_unit(path, start, boundary)
                start = boundary
    yield _text_unit(path, start, None)


def parquet_units(path: Path, unit_bytes: int) -> Iterator[Unit]:
    """Yield units of a Parquet file, cut between row groups."""
    with open_parquet(path) as (file, _):
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        sizes = [(group.total_byte_size, group.num_rows) for group in groups]
    start = rows = rows_before = taken = 0
    for number, (group_bytes, group_rows) in enumerate(sizes):
        if taken and taken + group_bytes > unit_bytes:
            yield Unit(path, start, number, rows_before)
            start, rows_before, taken = number, rows, 0
        taken += group_bytes
        rows += group_rows
    yield Unit(path, start, len(sizes), rows_before)


def whole_or(unit: Unit | None, paths: tuple[Path, ...]) -> Iterator[tuple[Path, int, int | None]]:
    """Yield path, start and end of the range to read: of the unit, or of each whole file if `unit` is None."""
    if unit is None:
        yield from ((path, 0, None) for path in paths)
    else:
        assert unit.path is not None
        yield unit.path, unit.start, unit.end


class LineCount:
    """Counter of the lines before each unit of a log, for requests in the order of the units."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._position = self._lines = 0

    def numbered(self, rejected: list[Rejection], unit: Unit) -> list[Rejection]:
        """Return the rejected rows of a unit, renumbered by their lines in the file."""
        before = self.before(unit) if rejected else 0
        return [replace(rejection, line=rejection.line + before) for rejection in rejected]

    def before(self, unit: Unit) -> int:
        """Return the number of lines, or rows of Parquet, in the file before a unit."""
        if unit.lines_before is not None or unit.path is None:
            return unit.lines_before or 0
        if unit.path != self._path or unit.start < self._position:
            self._path, self._position, self._lines = unit.path, 0, 0
        with open_checked(unit.path) as stream:
            stream.seek(self._position)
            while self._position < unit.start:
                block = stream.read(min(BLOCK_BYTES, unit.start - self._position))
                if not block:
                    break
                self._lines += block.count(b"\n")
                self._position += len(block)
        return self._lines


def _text_unit(path: Path, start: int, end: int | None) -> Unit:
    return Unit(path, start, end, lines_before=None if start else 0)


def _behind_last_newline(stream: BinaryIO, start: int, before: int) -> int:
    """Return the start of the line that contains position `before`; `start` if this line is too long."""
    at = before
    while at > max(start, before - LONGEST_LINE_BYTES):
        begin = max(start, at - _LOOK_BACK_BYTES)
        stream.seek(begin)
        found = stream.read(at - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    return start


def _has_quotes(path: Path) -> bool:
    with open_checked(path) as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(b'"') >= 0
