"""Bodies of requests as JSON, and answers."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from shunter.serving.errors import RefusedError, TooLargeRequestError

Unusable = Mapping[str, Mapping[str, float]]  # shares of unusable values by kind and column
MOST_VALUES = 2_000_000  # of JSON, which take up to 100 bytes each in memory
# A whole number that may not fit 64 bits, which orjson would make a fraction.
_LONG_NUMBER = re.compile(rb"\d{19}")
# Half of a character in UTF-16, which Python's JSON takes alone and no column can hold.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_object(body: bytes) -> dict[str, Any]:
    """A JSON object; NaN and infinite numbers, as Python writes them, are read too.

    Raises:
        RefusedError: It is none.
        TooLargeRequestError: It has so many values that Python's objects of them would take far more than the body.
    """
    if len(body) > MOST_VALUES and (values := sum(map(body.count, (b",", b"[", b"{")))) > MOST_VALUES:
        raise TooLargeRequestError(
            f"The body has {values:,} values, at most {MOST_VALUES:,} are read: send several requests."
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
        raise RefusedError(f"The body is no JSON ({error}): send one JSON object.") from None
    if not isinstance(found, dict):
        raise RefusedError(f"The body is a JSON {_kind(found)}: send one JSON object.")
    return found


def _as_python_reads(body: bytes) -> Any:
    """JSON with NaN and whole numbers of any length.

    Raises:
        ValueError: It is none, or holds a text that is not Unicode.
    """
    found = json.loads(body)
    if _SURROGATE.search(body):
        json.dumps(found, ensure_ascii=False).encode()
    return found


def written(answer: Any) -> bytes:
    """JSON whose numbers are read back bit by bit."""
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def expect(found: Any, kind: type[list] | type[dict] | type[str], name: str) -> Any:
    """`found`, where it is of the kind.

    Raises:
        RefusedError: It is not.
    """
    if not isinstance(found, kind):
        needed = {list: "a list", dict: "an object", str: "a text"}[kind]
        raise RefusedError(f"`{name}` is a JSON {_kind(found)}: give {needed}.")
    return found


def top_of(parameters: Any, name: str) -> int | None:
    """How many best items are wanted for each user; None where scores are. Other parameters have no effect.

    Raises:
        RefusedError: It is no number of items.
    """
    top = expect({} if parameters is None else parameters, dict, name).get("top")
    if top is not None and (type(top) is not int or top < 1):
        raise RefusedError(f"`top` is {str(top)[:60]}: give a whole number of items, at least 1.")
    return top


def same_length(columns: dict[str, Any], what: str) -> int:
    """Length that all columns have.

    Raises:
        RefusedError: They differ.
    """
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} has {length}" for name, length in list(lengths.items())[:4])
        raise RefusedError(f"The columns of `{what}` differ in length ({shown}): give each row a value or null.")
    return next(iter(lengths.values()), 0)


def unique(names: list[Any], what: str) -> list[str]:
    """Names as texts, each of them once.

    Raises:
        RefusedError: One is there twice.
    """
    texts = [str(name) for name in names]
    if len(set(texts)) < len(texts):
        (twice, _), *_ = Counter(texts).most_common(1)
        raise RefusedError(f"The column {twice} is there more than once in `{what}`: name each column once.")
    return texts


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), type(value).__name__)


def scores_by_name(scores: np.ndarray, outputs: tuple[str, ...]) -> dict[str, np.ndarray]:
    """A column for each output, of scores `[rows]` or `[rows, outputs]`."""
    table = scores.reshape(len(scores), len(outputs))
    return {name: np.ascontiguousarray(table[:, place]) for place, name in enumerate(outputs)}
