"""Parsing of JSON bodies, and writing of answers."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from shunter.serving.errors import RefusedError, TooLargeRequestError

Unusable = Mapping[str, Mapping[str, float]]  # shares of unusable values by kind and column
MOST_VALUES = 2_000_000  # largest number of values in a JSON body; each takes up to 100 bytes in memory
# Matches an integer that may exceed 64 bits, which orjson would convert to a float.
_LONG_NUMBER = re.compile(rb"\d{19}")
# Matches an unpaired UTF-16 surrogate, which Python's JSON accepts but a column cannot store.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; NaN and infinity, as Python writes them, are accepted.

    Raises:
        RefusedError: The body is not a JSON object.
        TooLargeRequestError: The body has more than `MOST_VALUES` values, whose Python objects would need far more
            memory than the body.
    """
    if len(body) > MOST_VALUES and (values := sum(map(body.count, (b",", b"[", b"{")))) > MOST_VALUES:
        raise TooLargeRequestError(
            f"The request body has {values:,} values, more than the permitted {MOST_VALUES:,}: send several requests."
        )
    try:
        if _LONG_NUMBER.search(body):
            found = _as_python_reads(body)
        else:
            try:
                found = orjson.loads(body)
            except orjson.JSONDecodeError:
                found = _as_python_reads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"The request body is not JSON ({error}): send one JSON object.") from None
    if not isinstance(found, dict):
        raise RefusedError(f"The request body is a JSON {_kind(found)}: send one JSON object.")
    return found


def _as_python_reads(body: bytes) -> Any:
    """Parse JSON with NaN and integers of any length."""
    found = json.loads(body)
    if _SURROGATE.search(body):
        json.dumps(found, ensure_ascii=False).encode()
    return found


def to_json(answer: Any) -> bytes:
    """Return an answer as JSON with numbers in full precision."""
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def expect(found: Any, kind: type[list] | type[dict] | type[str], name: str) -> Any:
    """Return `found` if it has the type `kind`.

    Raises:
        RefusedError: `found` has another type.
    """
    if not isinstance(found, kind):
        needed = {list: "a list", dict: "an object", str: "a text"}[kind]
        raise RefusedError(f"The key `{name}` holds a JSON {_kind(found)}: give {needed}.")
    return found


def top_of(parameters: Any, name: str) -> int | None:
    """Return the number of best items per user, the key `top` of a request's parameters; None if scores are requested.

    Raises:
        RefusedError: The value is not a positive whole number.
    """
    top = expect({} if parameters is None else parameters, dict, name).get("top")
    if top is not None and (type(top) is not int or top < 1):
        raise RefusedError(f"The key `top` is {str(top)[:60]}: give the number of items, at least 1.")
    return top


def same_length(columns: dict[str, Any], what: str) -> int:
    """Return the common length of all columns.

    Raises:
        RefusedError: The columns differ in length.
    """
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} has {length}" for name, length in list(lengths.items())[:4])
        raise RefusedError(f"The columns of `{what}` differ in length ({shown}): give a value or null for each row.")
    return next(iter(lengths.values()), 0)


def unique(names: list[Any], what: str) -> list[str]:
    """Return the names as texts, and raise if a name is repeated.

    Raises:
        RefusedError: A name occurs twice.
    """
    texts = [str(name) for name in names]
    if len(set(texts)) < len(texts):
        (twice, _), *_ = Counter(texts).most_common(1)
        raise RefusedError(f"The column {twice} occurs more than once in `{what}`: name each column once.")
    return texts


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), type(value).__name__)


def scores_by_name(scores: np.ndarray, outputs: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return a column for each output, from scores `[rows]` or `[rows, outputs]`."""
    table = scores.reshape(len(scores), len(outputs))
    return {name: np.ascontiguousarray(table[:, place]) for place, name in enumerate(outputs)}
