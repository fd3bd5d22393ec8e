"""Reader of a trace's rows that checks each field; errors name the line and the field."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from shunter.errors import DataError
from shunter.extensions.fleet.cluster import LARGEST_COUNT, LONGEST_NAME, LONGEST_SECONDS
from shunter.files import open_regular

Reader = Callable[[str], Any]


def open_text(path: Path) -> io.TextIOWrapper:
    """Open a text file without changing line ends; pipes and devices are rejected, because reading could block.

    Raises:
        OSError: The file cannot be opened, or is not a regular file.
    """
    return io.TextIOWrapper(open_regular(path), encoding="utf-8", newline="")


def rows(path: Path, fields: Mapping[str, Reader]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file with a header.

    Args:
        path: CSV file with a header.
        fields: Parser of each required field; raises ValueError with a description of the expected value.

    Yields:
        Line number and parsed fields.

    Raises:
        DataError: A field is missing or invalid.
    """
    with open_text(path) as file:
        reader = csv.DictReader(file)
        if missing := [name for name in fields if name not in (reader.fieldnames or ())]:
            raise DataError(f"The trace {path} has no column {missing[0]!r}: its first line must name the columns")
        for row in reader:
            line = reader.line_num
            yield line, {field: read(path, line, field, row[field], how) for field, how in fields.items()}


def read(path: Path, line: int, name: str, text: str | None, how: Reader) -> Any:
    """Parse one field.

    Raises:
        DataError: The field is invalid.
    """
    try:
        return how("" if text is None else text.strip())
    except ValueError as error:
        raise DataError(f"line {line} of {path}: {name} is {text!r}, but should be {error}") from error


def seconds(text: str) -> float:
    """Parse a time or a duration in seconds."""
    return _number(text, "a number of seconds, 0 or more", least=0.0, most=LONGEST_SECONDS)


def positive(text: str) -> float:
    """Parse a number above zero."""
    value = _number(text, "a number above 0", least=0.0, most=LONGEST_SECONDS)
    if value == 0:
        raise ValueError("a number above 0")
    return value


def count(text: str) -> int:
    """Parse a whole number of at least one."""
    expected = "a whole number of at least 1"
    value = _number(text, expected, least=1.0, most=LARGEST_COUNT)
    if value != int(value):
        raise ValueError(expected)
    return int(value)


def name(text: str) -> str:
    """Parse a name that is not empty and can be printed on a terminal."""
    if not text or not text.isprintable() or len(text) > LONGEST_NAME:
        raise ValueError(f"a name of 1 to {LONGEST_NAME} printable characters")
    return text


def folder_name(text: str) -> str:
    """Parse a name that cannot refer to another folder."""
    if not re.fullmatch(r"[\w-]+", text):
        raise ValueError("a name of letters, digits, _ and -")
    return text


def _number(text: str, expected: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ValueError(expected) from error
    if not isfinite(value) or value < least:
        raise ValueError(expected)
    if value > most:
        raise ValueError(f"{expected}, and at most {most:,.0f}")
    return value
