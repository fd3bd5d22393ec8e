"""YAML of users and of model folders, with bounds on memory, no repeated keys and no dates."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from shunter.errors import DataError, ShunterError
from shunter.files import open_regular

LARGEST_BYTES = 4 << 20
MOST_VALUES = 200_000  # keys and values, each alias and merge counted as all that it stands for
DEEPEST = 100  # levels of lists and keys, aliases followed
LONGEST_NUMBER = 1_000  # characters; numbers such as 1:59:59 take time by the square of their length
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)  # libyaml compares each with all others
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(ValueError):
    """A text that cannot be loaded as YAML; the message is a predicate, such as `is nested too deeply`.

    Attributes:
        remedy: Advice for the user, if other than to write YAML.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.remedy = remedy


class _Loader(_Parser):
    """Loader that refuses repeated keys and long numbers, and leaves dates as texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the parent
        letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct the keys of a YAML mapping with their values."""
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise YamlError(
                        f"gives {key.value!r} on line {seen[key.value]} and again on line {line}", "leave one out."
                    )
                seen[key.value] = line
        return super().construct_mapping(node, deep)


def _short(construct: Callable[[Any, yaml.ScalarNode], Any]) -> Callable[[Any, yaml.ScalarNode], Any]:
    def bounded(loader: Any, node: yaml.ScalarNode) -> Any:
        if len(node.value) > LONGEST_NUMBER:
            raise YamlError(f"holds a number of more than {LONGEST_NUMBER:,} characters")
        return construct(loader, node)

    return bounded


for _kind, _construct in (("int", yaml.SafeLoader.construct_yaml_int), ("float", yaml.SafeLoader.construct_yaml_float)):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _short(_construct))


@dataclass
class _Extent:
    """Size of a value with all its descendants."""

    anchor: str | None
    values: int = 1
    depth: int = 1

    def add(self, part: "_Extent") -> None:
        """Count a direct child value."""
        self.values += part.values
        self.depth = max(self.depth, part.depth + 1)


def load_yaml(text: str) -> Any:
    """Load a YAML or JSON document (JSON is YAML too).

    Raises:
        YamlError: The document is neither YAML nor JSON, repeats a key, or exceeds the bounds of this module.
    """
    try:
        _check_bounds(text)
        return yaml.load(text, _Loader)
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise YamlError(f"is neither YAML nor JSON{where}") from error


def yaml_text(path: Path) -> str:
    """Return the text of a YAML file.

    Raises:
        OSError: The file cannot be read.
        YamlError: The file is too large, or not in UTF-8.
    """
    with open_regular(path) as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise YamlError(f"holds more than {LARGEST_BYTES >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise YamlError("is neither YAML nor JSON") from error


def _check_bounds(text: str) -> None:
    """Raise a `YamlError` if loading a text would take much time or memory."""
    if len(text) > LARGEST_BYTES or _DIRECTIVE.search(text):
        raise YamlError(f"holds more than {LARGEST_BYTES >> 20} MiB, or directives (%)")
    total, known, unfinished = 0, dict[str, _Extent](), [_Extent(None)]
    for event in yaml.parse(text, _Loader):
        done: _Extent | None = None
        match event:
            case yaml.CollectionStartEvent():
                unfinished.append(_Extent(event.anchor))
                total += 1
            case yaml.CollectionEndEvent():
                done = unfinished.pop()
            case yaml.ScalarEvent():
                done = _Extent(event.anchor)
                total += 1
            case yaml.AliasEvent():
                if event.anchor not in known:
                    raise YamlError(f"has an alias *{event.anchor} without an anchor before it")
                done = known[event.anchor]
                total += done.values
        if total > MOST_VALUES:
            raise YamlError(f"holds more than {MOST_VALUES:,} values, aliases followed")
        if len(unfinished) - 1 + (done.depth if done else 0) > DEEPEST:
            raise YamlError("is nested too deeply")
        if done is not None:
            unfinished[-1].add(done)
            if done.anchor is not None:
                known[done.anchor] = done


def read_yaml(path: Path, what: str, example: str, error_type: type[ShunterError] = DataError) -> dict[str, Any]:
    """Read a YAML or JSON file of keys (JSON is YAML too).

    Args:
        path: The file.
        what: Kind of the file for messages, such as "schema file".
        example: Example content of such a file, for messages.
        error_type: Class of the error to raise.

    Raises:
        ShunterError: The file cannot be read, is neither YAML nor JSON, repeats a key or has no keys.
    """
    shown_name = f"The {what} {path}"
    try:
        text = yaml_text(path)
    except OSError as error:
        raise error_type(f"{shown_name} cannot be read ({error.strerror}): give an existing file.") from error
    except YamlError as error:
        raise error_type(f"{shown_name} {error}: write one such as '{example}', one key a line.") from error
    return parse_yaml(text, shown_name, example, error_type)


def parse_yaml(text: str, shown_name: str, example: str, error_type: type[ShunterError] = DataError) -> dict[str, Any]:
    """Read keys from YAML or JSON.

    Raises:
        ShunterError: The text is neither YAML nor JSON, repeats a key or has no keys.
    """
    try:
        values = load_yaml(text)
    except YamlError as error:
        remedy = error.remedy or f"write one such as '{example}', one key a line."
        raise error_type(f"{shown_name} {error}: {remedy}") from error
    if not isinstance(values, dict):
        raise error_type(f"{shown_name} holds no keys: write for instance '{example}', one key a line.")
    return {str(key): value for key, value in values.items()}
