"""Criteo click logs: tab-separated lines of a label, 13 integers and 26 hexadecimal ids, with gaps, no header.

A general CSV parser makes a text object of every field. Criteo fields have a fixed form, so a chunk of text is read as
one array of bytes. The eight bytes before each separator are one 64-bit integer, and vectorised arithmetic on these
integers parses the numbers (Lemire, "Quickly parsing eight digits", 2018). Rows of another form are parsed one by one,
which either succeeds or gives the reason of the rejection.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.errors import DataError
from shunter.ingestion.batch import UNIT_BYTES, Columns, RawBatch, Rejection, Unit
from shunter.ingestion.encoding.buckets import number_keys
from shunter.ingestion.encoding.columns import hexadecimal_key
from shunter.ingestion.fields import Label, SingleValued
from shunter.ingestion.schema import Options, Schema
from shunter.ingestion.sources.files import read_blocks
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.units import text_units, whole_or

NUMERIC = tuple(f"I{number}" for number in range(1, 14))
CATEGORICAL = tuple(f"C{number}" for number in range(1, 27))
_FIELDS = 1 + len(NUMERIC) + len(CATEGORICAL)
_WORD_BYTES = 8
_TAB, _NEWLINE, _MINUS = 9, 10, 45


def _every_byte(value: int) -> np.uint64:
    return np.uint64(int.from_bytes(bytes([value]) * _WORD_BYTES))


# One byte repeated in all eight bytes of a 64-bit integer.
_ONES, _LOW_NIBBLES, _HIGH_BITS = _every_byte(1), _every_byte(0x0F), _every_byte(0x80)
_ZERO_DIGITS, _OVERFLOW_ABOVE_NINE, _SIX = _every_byte(ord("0")), _every_byte(0x76), _every_byte(6)

Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]


def criteo_schema(options: Options) -> Schema:
    """Return the schema of a Criteo log; only vocabulary, buckets of the numbers and split can be set."""
    if options.split.per_user:
        raise DataError("Criteo's format has no users: leave per_user out of the split in the schema.")
    return Schema(
        label=Label(column="label"),
        numeric=NUMERIC,
        categorical=tuple(SingleValued(column=name) for name in CATEGORICAL),
        buckets=options.buckets,
        vocabulary=options.vocabulary,
        split=options.split,
    )


@dataclass(frozen=True)
class TextChunk:
    """Chunk of whole lines of a file, with the number of the first line."""

    path: Path
    first_line: int
    text: bytes


@dataclass(frozen=True)
class CriteoSource:
    """Source of Criteo files, plain or compressed."""

    name: str
    schema: Schema
    paths: tuple[Path, ...]
    identity: str = "criteo"

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Return an iterator of units of the files in order."""
        return (unit for path in self.paths for unit in text_units(path, unit_bytes))

    def chunks(self, unit: Unit | None = None, budget: Budget | None = None) -> Iterator[TextChunk]:
        """Yield the files, or one unit, in chunks of whole lines."""
        budget = budget or Budget.of_settings()
        for path, start, end in whole_or(unit, self.paths):
            line = 1
            for text in read_blocks(path, budget=budget, start=start, end=end):
                yield TextChunk(path, line, text)
                line += _newlines(np.frombuffer(text, np.uint8))

    def parse(self, chunk: TextChunk) -> RawBatch:
        """Parse the lines of a chunk in Criteo's format."""
        return with_buckets(parse_text(chunk.text, str(chunk.path), chunk.first_line), self.schema)


def with_buckets(batch: RawBatch, schema: Schema) -> RawBatch:
    """Return the batch; if the schema has buckets, the numbers are appended as keys."""
    if len(schema.categorical) == len(CATEGORICAL):
        return batch
    columns = batch.columns
    keys = np.concatenate([columns.keys, np.array([number_keys(column) for column in columns.numeric])])
    return replace(batch, columns=replace(columns, keys=keys))


def parse_text(text: bytes, source: str, first_line: int) -> RawBatch:
    """Parse whole lines in Criteo's format."""
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    padded = np.frombuffer(bytes(_WORD_BYTES) + text, np.uint8)
    words = np.ndarray((len(text) + 1,), "<u8", buffer=padded.data, strides=(1,))
    starts, ends, lines, rejected = _locate(text, source, first_line)

    labels = words[ends[0]] >> np.uint64(56)
    unsure = (ends[0] - starts != 1) | ((labels != ord("0")) & (labels != ord("1")))
    numeric = np.empty((len(NUMERIC), len(starts)), np.float32)
    for index in range(len(NUMERIC)):
        end = ends[1 + index]
        numeric[index], valid = _decimal(words[end], end - ends[index] - 1)
        unsure |= ~valid
    keys = np.empty((len(CATEGORICAL), len(starts)), np.uint64)
    for index in range(len(CATEGORICAL)):
        end, before = ends[1 + len(NUMERIC) + index], ends[len(NUMERIC) + index]
        keys[index], valid = _hexadecimal(words[end], end - before - 1)
        unsure |= ~valid

    labels = labels.astype(np.float32) - np.float32(ord("0"))
    kept = np.ones(len(starts), bool)
    for row in np.flatnonzero(unsure):
        line = text[starts[row] : ends[-1][row]]
        try:
            labels[row], numeric[:, row], keys[:, row] = parse_line(line)
        except ValueError as error:
            kept[row] = False
            rejected.append(Rejection(source, int(first_line + lines[row]), str(error)))
    columns = Columns(numeric, keys, [])
    if not kept.all():
        labels, columns = labels[kept], columns.select(kept)
    return RawBatch(labels, columns, rejected=sorted(rejected, key=lambda rejection: rejection.line))


def parse_line(line: bytes) -> tuple[float, list[float], list[int]]:
    """Parse one line field by field, if the vectorised parser cannot read it.

    Returns:
        The label, the numbers (NaN for a gap) and the keys (0 for a gap).

    Raises:
        ValueError: A field is invalid; the message gives the reason.
    """
    fields = line.decode(errors="replace").split("\t")
    label, numeric, categorical = fields[0], fields[1 : 1 + len(NUMERIC)], fields[1 + len(NUMERIC) :]
    if label not in {"0", "1"}:
        raise ValueError(f"the label is {label[:20]!r}, but should be 0 or 1")
    numbers = []
    for name, text in zip(NUMERIC, numeric, strict=True):
        try:
            number = np.float32(text or "nan")
        except ValueError:
            number = np.float32(np.inf)
        if np.isinf(number):
            raise ValueError(f"the value of {name} is {text[:20]!r}, but should be a number")
        numbers.append(float(number))
    keys = [hexadecimal_key(text) for text in categorical]
    for name, text, key in zip(CATEGORICAL, categorical, keys, strict=True):
        if text and not key:
            raise ValueError(f"the value of {name} is {text[:20]!r}, but should be up to eight hexadecimal digits")
    return float(label), numbers, keys


def _locate(
    text: bytes, source: str, first_line: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], list[Rejection]]:
    """Locate the fields of the lines with the right number of fields.

    Returns:
        Start of each line [lines], end of each field [fields, lines], index of each line [lines], and rejections of the
        other lines.
    """
    buffer = np.frombuffer(text, np.uint8)
    separators = np.flatnonzero(buffer <= _NEWLINE)
    newlines = _newlines(buffer)
    if newlines * _FIELDS == len(separators) and buffer.min(initial=_TAB) >= _TAB:
        by_line = separators.reshape(-1, _FIELDS)
        if (buffer[by_line[:, -1]] == _NEWLINE).all():  # as are all lines of most blocks
            ends = np.ascontiguousarray(by_line.T)
            starts = np.concatenate([[0], ends[-1][:-1] + 1])[:newlines]
            return starts, ends, np.arange(newlines), []
    return _locate_right(buffer, separators[buffer[separators] >= _TAB], source, first_line)


def _newlines(buffer: NDArray[np.uint8]) -> int:
    """Return the number of newlines in a buffer, several times faster than `bytes.count`."""
    return int(np.count_nonzero(buffer == _NEWLINE))


def _locate_right(
    buffer: NDArray[np.uint8], separators: NDArray[np.int64], source: str, first_line: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], list[Rejection]]:
    """Locate the fields (see `_locate` for the result) where lines may be blank or have a wrong number of fields."""
    is_newline = buffer[separators] == _NEWLINE
    line_ends = separators[is_newline]
    starts = np.concatenate([[0], line_ends[:-1] + 1])[: len(line_ends)]
    field_counts = np.diff(np.flatnonzero(is_newline), prepend=-1)
    right = field_counts == _FIELDS
    rejected: list[Rejection] = []
    if not right.all():
        separators = separators[np.repeat(right, field_counts)]
        for index in np.flatnonzero(~right & (line_ends > starts)):
            reason = f"{field_counts[index]} columns, expected {_FIELDS}"
            rejected.append(Rejection(source, first_line + int(index), reason))
    ends = np.ascontiguousarray(separators.reshape(-1, _FIELDS).T)
    return starts[right], ends, np.flatnonzero(right), rejected


def _decimal(words: Words, lengths: NDArray[np.int64]) -> tuple[NDArray[np.float32], Mask]:
    """Parse integers of up to eight characters, the last bytes of `words`; return numbers (NaN if empty), validity."""
    gap = lengths == 0
    shift = (np.clip(_WORD_BYTES - lengths, 0, 7) * 8).astype(np.uint64)
    negative = (words >> shift) & np.uint64(0xFF) == _MINUS
    # Each byte before the digits becomes zero, each digit becomes its value.
    digits = ((words >> shift) ^ (_ZERO_DIGITS >> shift)) << shift
    digits ^= negative * (np.uint64(_MINUS ^ ord("0")) << shift)
    out_of_range = ((digits + _OVERFLOW_ABOVE_NINE) | digits) & _HIGH_BITS
    valid = gap | ((out_of_range == 0) & (lengths <= _WORD_BYTES) & (lengths > negative))
    # Pairs of digits, then of two-digit numbers, then of four-digit numbers; the first digit is the lowest byte.
    pairs = ((digits * np.uint64(10 * 2**8 + 1)) >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    fours = ((pairs * np.uint64(100 * 2**16 + 1)) >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    values = ((fours * np.uint64(10_000 * 2**32 + 1)) >> np.uint64(32)).astype(np.float32)
    np.negative(values, out=values, where=negative)
    values[gap] = np.nan
    return values, valid


def _hexadecimal(words: Words, lengths: NDArray[np.int64]) -> tuple[Words, Mask]:
    """Parse ids of exactly eight hexadecimal digits; return keys (number + 1, or 0 if empty) and validity."""
    letter = (words >> np.uint64(6)) & _ONES
    nibbles = ((words & _LOW_NIBBLES) + letter * np.uint64(9)) & _LOW_NIBBLES
    # The digits are valid exactly if formatting the nibbles gives the same text in lower case.
    above_nine = ((nibbles + _SIX) >> np.uint64(4)) & _ONES
    written = nibbles + _ZERO_DIGITS + above_nine * np.uint64(ord("a") - ord("0") - 10)
    gap = lengths == 0
    valid = gap | ((written == (words | (letter << np.uint64(5)))) & (lengths == _WORD_BYTES))
    pairs = (nibbles << np.uint64(4) | nibbles >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs << np.uint64(8) | pairs >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    keys = ((fours << np.uint64(16) | fours >> np.uint64(32)) & np.uint64(0xFFFFFFFF)) + np.uint64(1)
    keys[gap] = 0
    return keys, valid
