"""Checks of values of users, and messages about invalid ones, in place of those of pydantic."""

import difflib
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ByteSize, TypeAdapter, ValidationError

from shunter.secrets import without_secrets

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 60
_SHOWN.maxlist = _SHOWN.maxtuple = _SHOWN.maxdict = 3
_SHOWN.maxlevel = 2
# What a value had to be, by the kind of the fault; names in braces are its context.
_EXPECTED = {
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
    "string_pattern_mismatch": "a text of the form {pattern}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "enum": "{expected}",
    "literal_error": "{expected}",
}
# The same by how the kind begins: there are several to a type.
_EXPECTED_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "string": "a text",
    "bytes": "a text",
    "datetime": "a date and time such as 2026-03-09T10:00:00Z",
    "timezone": "a date and time with its zone, such as 2026-03-09T10:00:00Z",
    "date": "a date such as 2026-03-09",
    "time_delta": "a duration in seconds",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen_set": "a list",
    "iterable": "a list",
    "dict": "keys with values",
    "mapping": "keys with values",
    "model": "keys with values",
    "path": "the path of a file",
    "none": "nothing",
    "url": "an address",
}


def sentence(clauses: list[str]) -> str:
    """Return the clauses as one sentence; a question mark at the end is kept."""
    text = "; ".join(clause.rstrip("?.") for clause in clauses)
    return text + ("?" if clauses[-1].endswith("?") else ".")


def clause(fault: Mapping[str, Any], model: type[BaseModel], name: str = "key") -> str:
    """Return one fault as a clause without a full stop: place, fault, and what to write instead.

    Args:
        fault: Error of pydantic.
        model: Pydantic model that was validated.
        name: Noun for the fields in the message: key, option or field.
    """
    where, kind = tuple(fault["loc"]), str(fault["type"])
    if kind == "extra_forbidden":
        return unknown(str(where[-1]), keys_at(model, where[:-1]), name, place(where[:-1]))
    if kind == "missing":
        return f"{place(where)} is missing: add it"
    if kind in ("value_error", "assertion_error"):
        return own_text(fault, place(where))
    found = place(where) or "what was given"
    return f"{found} is {shown(fault['input'])}: give {expected(fault)}"


def own_text(fault: Mapping[str, Any], where: str) -> str:
    """Return the message of a check that Shunter adds to a pydantic model, preceded by the value if it is a scalar."""
    message = str(fault.get("ctx", {}).get("error") or fault["msg"]).removeprefix("Value error, ").rstrip(".")
    if not where or isinstance(fault["input"], Mapping | BaseModel):
        return message
    return f"{where} {without_secrets(str(fault['input']))[:60]}: {message}"


def expected(fault: Mapping[str, Any]) -> str:
    """Return the kind of value that would be valid, such as `a whole number`, for an error of pydantic."""
    kind, context = str(fault["type"]), fault.get("ctx", {})
    if kind in _EXPECTED:
        numbers = {name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()}
        text = _EXPECTED[kind].format_map(numbers).replace("'", "")
        is_single = 1 in (context.get("min_length"), context.get("max_length"))
        return text.replace(" characters", " character") if is_single else text
    for length in (2, 1):  # the longer beginning first: time_delta is no time
        if what := _EXPECTED_TYPES.get("_".join(kind.split("_")[:length])):
            return what
    return "another value"


def unknown(given: str, known: list[str], name: str = "key", where: str = "") -> str:
    """Return a clause that says that a name is unknown, with the most similar known name or all known names."""
    inside = f" in {where}" if where else ""
    near = similar(given, known)
    advice = f"did you mean {near}?" if near else f"it takes {', '.join(known) or 'none'}"
    return f"there is no {name} {shown(given)}{inside}: {advice}"


def similar(given: str, known: list[str]) -> str | None:
    """Return the most similar known name."""
    return next(iter(difflib.get_close_matches(given, known, n=1, cutoff=0.6)), None)


def place(location: tuple[Any, ...]) -> str:
    """Return the place of a value as text, such as `min_count in entry 1 of categorical`."""
    names = [f"entry {part + 1}" if isinstance(part, int) else str(part) for part in location]
    text = ""
    for part, name in zip(location, names, strict=True):
        text = name if not text else f"{name} of {text}" if isinstance(part, int) else f"{name} in {text}"
    return text


def shown(value: Any) -> str:
    """Return a value as the user wrote it, shortened if it is long."""
    if value is None:
        return "empty"
    return value if isinstance(value, str) and value.isidentifier() and len(value) < 40 else _SHOWN.repr(value)


def keys_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the field names of the model at a location within another model."""
    for part in location:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(str(part))
        inner = next(_models(field.annotation), None) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


_SIZE: TypeAdapter[ByteSize] = TypeAdapter(ByteSize)


def parse_bytes(text: str) -> int:
    """Parse a size such as `64MiB` or `2GB`: 2**20 bytes a MiB, 10**6 a MB.

    Raises:
        ValueError: The text is not a positive number with a unit.
    """
    try:
        size = int(_SIZE.validate_python(text))
    except ValidationError:
        size = 0
    if size < 1:
        raise ValueError(f"{text!r} is not a size: write a number with its unit, such as 512MiB or 2GiB")
    return size


def checked_bytes(text: str | None) -> str | None:
    """Return the text of a size option unchanged; None if the option is absent.

    Raises:
        ValueError: The text is not a size.
    """
    if text is not None:
        parse_bytes(text)
    return text
