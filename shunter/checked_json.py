"""Small JSON files with a checksum, so that damage is detected when a file is read.

The last key of a checked object is `"file_checksum"`, the CRC-32 of all bytes before that key. Readers of plain JSON
see one more key. Files of former versions have no checksum; they are read unchecked, if they are complete JSON.
"""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from shunter.errors import DamagedFileError
from shunter.files import replace_file
from shunter.quarantine import quarantine

KEY = "file_checksum"
_TAIL = b'"file_checksum": "00000000"}'  # the digits stand for those of the checksum
_DIGITS = slice(-10, -2)
_FIXED = [place for place, byte in enumerate(_TAIL) if byte != ord("0")]
Value = TypeVar("Value")


def seal(text: str) -> str:
    """Return the text of a JSON object with its checksum as the last key."""
    head = text.rstrip()
    assert (head[:1], head[-1:]) == ("{", "}"), "a checked file holds a JSON object"
    head = head[:-1].rstrip()
    head = f"{head} " if head == "{" else f"{head}, "
    return f'{head}"{KEY}": "{zlib.crc32(head.encode()):08x}"}}'


def unseal(content: bytes) -> bytes:
    """Return the text of a JSON object without its checksum; return a text that has no checksum unchanged.

    Raises:
        ValueError: The content does not match its checksum, or is not JSON.
    """
    head, tail = content[: -len(_TAIL)], content[-len(_TAIL) :]
    if len(tail) == len(_TAIL) and sum(tail[at] == _TAIL[at] for at in _FIXED) * 2 > len(_FIXED):
        expected = bytearray(_TAIL)
        expected[_DIGITS] = b"%08x" % zlib.crc32(head)
        if tail != expected:
            raise ValueError("the checksum of the file does not match")
        return head.rstrip().removesuffix(b",") + b"}"
    values = parse_json(content)
    if isinstance(values, dict) and KEY in values:
        raise ValueError("the file does not end with its checksum")
    return content


def read_checked(path: Path, parse: Callable[[bytes], Value]) -> Value:
    """Read a checked JSON file.

    Args:
        path: The file.
        parse: Function that turns the JSON text into a value; any exception that it raises counts as damage.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: The file cannot be read.
        DamagedFileError: The file is damaged.
    """
    content = path.read_bytes()
    try:
        return parse(unseal(content))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
        raise DamagedFileError(path, reason) from error


def read_or_quarantine(path: Path, parse: Callable[[bytes], Value]) -> Value | None:
    """Read a checked JSON file that can be recreated; None if it is missing, or was damaged and is now quarantined."""
    try:
        return read_checked(path, parse)
    except OSError:
        return None
    except DamagedFileError as error:
        quarantine(path, error.reason)
        return None


def write_checked(path: Path, text: str, *, is_durable: bool = False) -> None:
    """Write a JSON object with its checksum in one step; see `shunter.files.replace_file`.

    Raises:
        OSError: The file cannot be written.
    """
    replace_file(path, seal(text), is_durable=is_durable)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON of any origin.

    Raises:
        ValueError: The text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def json_object(text: bytes) -> dict[str, Any]:
    """Parse a JSON object; for `read_checked`.

    Raises:
        ValueError: The text is not a JSON object.
    """
    values = parse_json(text)
    if not isinstance(values, dict):
        raise ValueError("no JSON object")
    return values
