"""Handling of unclosed quotes in a CSV file: a line with an unclosed quote is rejected, the following lines are read.

A CSV reader would take everything up to the next quote as one value and silently lose thousands of rows.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import Rejection

_QUOTE, _NEWLINE = 34, 10
_LONGEST_RECORD_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_FEWEST_COLUMNS = 3  # with two columns, a text may hold the only delimiter by chance
_REASON = "a quote opened here is not closed in its row"


class QuotedLines(io.RawIOBase):
    """Stream of a CSV file in which each line with an unclosed quote is replaced by a blank line.

    Attributes:
        boundary: Largest known byte offset in the file between two records.
    """

    def __init__(self, path: Path, stream: BinaryIO, delimiter: str, columns: int, *, has_quotes: bool = True) -> None:
        """Set the stream to read from; without quotes, every line is a record."""
        super().__init__()
        self._path, self._stream, self._has_quotes = path, stream, has_quotes
        self._delimiter, self._columns = delimiter.encode(), columns
        field = rb'(?>"(?:[^"\n]++|"")*+"[^D\n]*+|[^"D\n][^D\n]*+|)'.replace(b"D", re.escape(self._delimiter))
        self._line = re.compile(rb"(?:%b%b)*+%b(?:\n|\Z)" % (field, re.escape(self._delimiter), field))
        self.boundary = 0
        self._lines = 0  # number of lines before the current text
        self._long_records: list[int] = []
        self._extra_lines: list[int] = [0]
        self._rejected: list[Rejection] = []
        self._ready = b""
        self._blocks = self._clean()

    def readable(self) -> bool:
        """Return True, because the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read up to the size of the buffer; return the number of bytes read."""
        while not self._ready:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._ready = block
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def lines_of(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the first line of each record; record 1 is the header, and a record may span lines."""
        return records + np.array(self._extra_lines)[np.searchsorted(self._long_records, records)]

    def take_rejected(self, before: int | None) -> list[Rejection]:
        """Return and remove the rejected lines before line `before`, or all if `before` is None."""
        taken = [rejection for rejection in self._rejected if before is None or rejection.line < before]
        self._rejected = self._rejected[len(taken) :]
        return taken

    def boundaries(self, block_bytes: int = _BLOCK_BYTES) -> Iterator[int]:
        """Read the whole file in blocks; after each block yield a byte offset between two records."""
        for _ in self._clean(min(block_bytes, _BLOCK_BYTES)):
            yield self.boundary

    def _clean(self, block_bytes: int = _BLOCK_BYTES) -> Iterator[bytes]:
        rest, position = b"", 0
        while block := self._stream.read(block_bytes):
            text = rest + block
            position += len(block)
            end = text.rfind(b"\n") + 1
            if end == 0 and len(text) > _LONGEST_RECORD_BYTES:  # other line ends, which the CSV reader handles
                yield text
                rest = b""
                continue
            cleaned, left = self._close_quotes(text[:end], at_end=False)
            yield cleaned
            rest = left + text[end:]
            self.boundary = position - len(rest)
        yield self._close_quotes(rest, at_end=True)[0]

    def _close_quotes(self, text: bytes, *, at_end: bool) -> tuple[bytes, bytes]:
        """Return whole lines without unclosed quotes, and the beginning of a record that continues after the text."""
        done: list[bytes] = []
        start, first_line = 0, self._lines + 1
        for index, begin in self._doubtful_lines(text):
            line = first_line + index
            if begin < start or line == 1 or self._line.match(text, begin):
                continue  # inside a record, the header, or a complete row of one line
            end, is_whole = self._record(text, begin)
            next_line = text.find(b"\n", begin) + 1 or len(text)
            if end is None and not at_end and len(text) - begin <= _LONGEST_RECORD_BYTES:
                self._lines += index
                return b"".join([*done, text[start:begin]]), text[begin:]
            if end is None or (end > next_line and not is_whole):
                done += [text[start:begin], b"\n"]
                start = next_line
                self._rejected.append(Rejection(str(self._path), line, _REASON))
            elif end > next_line:
                done.append(text[start:end])
                start = end
                self._long_records.append(line - self._extra_lines[-1])
                self._extra_lines.append(self._extra_lines[-1] + text.count(b"\n", begin, end - 1))
        self._lines += text.count(b"\n")
        return b"".join([*done, text[start:]]), b""

    def _doubtful_lines(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield index and byte offset of the lines whose quotes do not pair up at field borders."""
        if not self._has_quotes or b'"' not in text:
            return
        letters = np.frombuffer(text, np.uint8)
        is_newline = letters == _NEWLINE
        newlines, quotes = np.flatnonzero(is_newline), np.flatnonzero(letters == _QUOTE)
        line_of = np.cumsum(is_newline, dtype=np.int32)[quotes]
        starts = np.concatenate([[0], newlines + 1])
        counts = np.bincount(line_of, minlength=len(starts))
        rank = np.arange(len(quotes)) - (np.cumsum(counts) - counts)[line_of]
        before = np.where(quotes == starts[line_of], _QUOTE, letters[quotes - 1])
        opens_within = (rank % 2 == 0) & (before != _QUOTE) & (before != ord(self._delimiter))
        doubtful = counts % 2 == 1
        doubtful[line_of[opens_within]] = True
        for index in np.flatnonzero(doubtful):
            yield int(index), int(starts[index])

    def _record(self, text: bytes, position: int) -> tuple[int | None, bool]:
        """Return the end of the record at a position (None if the text ends first), and whether the record is valid."""
        begin, fields, is_closed = position, 1, True
        while True:
            if text[position : position + 1] == b'"':
                position += 1
                while (position := text.find(b'"', position)) >= 0 and text[position + 1 : position + 2] == b'"':
                    position += 2  # doubled quotes are text
                if position < 0:
                    return None, False
                position += 1
                is_closed &= text[position : position + 1] in {b"", b"\n", b"\r", self._delimiter}
            end = text.find(b"\n", position)
            end = len(text) if end < 0 else end
            position = text.find(self._delimiter, position, end) + 1
            if position == 0:
                break
            fields += 1
        lines = text[begin:end].split(b"\n")
        # Lines that are each a complete row are not the text of one value.
        are_rows = self._columns >= _FEWEST_COLUMNS and all(
            line.count(self._delimiter) == self._columns - 1 for line in lines
        )
        return min(end + 1, len(text)), is_closed and fields == self._columns and not are_rows
