"""Rows of a trace, each field checked: a broken line is refused by its number and its field."""

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
    """A file of text, line ends as they are; a pipe or a device is refused instead of waited for.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    return io.TextIOWrapper(open_regular(path), encoding="utf-8", newline="")


def rows(path: Path, fields: Mapping[str, Reader], delimiter: str = ",") -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file with a header.

    Args:
        path: The file.
        fields: What reads each field that is needed; it raises ValueError with what the field should be.
        delimiter: Between fields.

    Yields:
        The number of the line and its fields.

    Raises:
        DataError: A field is missing or is not what it should be.
    """
    with open_text(path) as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        if missing := [name for name in fields if name not in (reader.fieldnames or ())]:
            raise DataError(f"{path} has no column {missing[0]!r}: its first line names the columns")
        for row in reader:
            line = reader.line_num
            yield line, {field: read(path, line, field, row[field], how) for field, how in fields.items()}


def read(path: Path, line: int, name: str, text: str | None, how: Reader) -> Any:
    """One field.

    Raises:
        DataError: It is not what it should be.
    """
    try:
        return how("" if text is None else text.strip())
    except ValueError as error:
        raise DataError(f"line {line} of {path}: {name} is {text!r}, and should be {error}") from error


def seconds(text: str) -> float:
    """A moment or a duration."""
    return _number(text, "a number of seconds, 0 or more", least=0.0, most=LONGEST_SECONDS)


def positive(text: str) -> float:
    """A number above zero."""
    value = _number(text, "a number above 0", least=0.0, most=LONGEST_SECONDS)
    if value == 0:
        raise ValueError("a number above 0")
    return value


def count(text: str) -> int:
    """A whole number of at least one."""
    expected = "a whole number of at least 1"
    value = _number(text, expected, least=1.0, most=LARGEST_COUNT)
    if value != int(value):
        raise ValueError(expected)
    return int(value)


def name(text: str) -> str:
    """A name that is not empty, and can be written on a terminal."""
    if not text or not text.isprintable() or len(text) > LONGEST_NAME:
        raise ValueError(f"a name of 1 to {LONGEST_NAME} printable characters")
    return text


def folder_name(text: str) -> str:
    """A name that leads to no other folder."""
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
