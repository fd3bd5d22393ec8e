"""Codec of dataclasses that are stored as plain values."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Self, Union, cast, get_args, get_origin, get_type_hints

OPTIONAL = {"is_optional": True}  # metadata of a field that is stored only if it is not at its default
_NEVER = object()  # equal to no value


class Record:
    """Base of a dataclass that is stored as plain values and read back by its type hints."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, ready for JSON, without `OPTIONAL` ones at their default."""
        defaults = {
            one.name: one.default if one.default_factory is MISSING else one.default_factory()
            for one in fields(self)  # pyright: ignore[reportArgumentType]
            if one.metadata.get("is_optional")
        }
        values = asdict(self)  # pyright: ignore[reportArgumentType]
        return {name: value for name, value in values.items() if value != defaults.get(name, _NEVER)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build the record from plain values; inverse of `to_dict`.

        Raises:
            TypeError: A field is missing or unknown.
        """
        return _record(cls, values)


def _record(kind: type, values: Mapping[str, Any]) -> Any:
    hints = _hints(kind)
    return kind(**{name: _value(hints.get(name), value) for name, value in values.items()})


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any) -> Any:
    """Convert a plain value to the type of its field: nested records, and tuples that JSON stores as lists."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = [one for one in arguments if one is not type(None)]
        return value if value is None or len(kinds) > 1 else _value(kinds[0], value)
    if isinstance(value, Mapping):
        if is_dataclass(hint):
            return _record(cast(type, hint), value)
        return {key: _value(arguments[1], item) for key, item in value.items()} if origin is dict else value
    if origin is tuple and isinstance(value, list | tuple):
        each = arguments[:1] * len(value) if arguments[-1] is ... else arguments
        return tuple(_value(one, item) for one, item in zip(each, value, strict=True))
    return [_value(arguments[0], item) for item in value] if origin is list and isinstance(value, list) else value
