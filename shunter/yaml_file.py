"""Reading what a user wrote in YAML: no key is lost to another one, no text becomes a date."""

from pathlib import Path
from typing import Any

import yaml

from shunter.errors import DataError, ShunterError
from shunter.files import open_regular

LARGEST_BYTES = 4 << 20
DEEPEST = 100  # levels of lists and keys; the reader calls itself for each


class _Loader(yaml.SafeLoader):
    """Refuses repeated keys, and leaves dates as they were written."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the parent
        letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """A node with all below it."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise RecursionError
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The keys with their values."""
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise _RepeatedKeyError(key.value, seen[key.value], line)
                seen[key.value] = line
        return super().construct_mapping(node, deep)


class _RepeatedKeyError(Exception):
    """A key that was given before."""


def read_yaml(path: Path, what: str, example: str, error_type: type[ShunterError] = DataError) -> dict[str, Any]:
    """Read a YAML or JSON file of keys (JSON is YAML too).

    Args:
        path: The file.
        what: What it is, for messages: "schema file".
        example: What such a file may hold.
        error_type: Kind of the error.

    Raises:
        ShunterError: It cannot be read, is neither, repeats a key or holds none.
    """
    told = f"The {what} {path}"
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise error_type(f"{told} holds more than {LARGEST_BYTES >> 20} MiB: give a {what}.")
        text = content.decode("utf-8")
    except OSError as error:
        raise error_type(f"{told} cannot be read ({error.strerror}): give an existing file.") from error
    except UnicodeDecodeError as error:
        raise error_type(f"{told} is neither YAML nor JSON: write one such as '{example}', one key a line.") from error
    return parse_yaml(text, told, example, error_type)


def parse_yaml(text: str, told: str, example: str, error_type: type[ShunterError] = DataError) -> dict[str, Any]:
    """Read keys from YAML or JSON.

    Args:
        text: What was written.
        told: What it is, as the beginning of a sentence.
        example: What it may hold.
        error_type: Kind of the error.

    Raises:
        ShunterError: It is neither, repeats a key or holds none.
    """
    try:
        values = yaml.load(text, _Loader)
    except _RepeatedKeyError as error:
        key, first, second = error.args
        raise error_type(f"{told} gives {key!r} on line {first} and again on line {second}: leave one out.") from error
    except RecursionError as error:
        raise error_type(f"{told} is nested too deeply: write one such as '{example}', one key a line.") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise error_type(
            f"{told} is neither YAML nor JSON{where}: write one such as '{example}', one key a line."
        ) from error
    if not isinstance(values, dict):
        raise error_type(f"{told} holds no keys: write for instance '{example}', one key a line.")
    return {str(key): value for key, value in values.items()}
