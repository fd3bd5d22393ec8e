"""The options of every command."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer.main

from shunter.flows.command.cli import app

FILE = "options.json"


def options() -> dict[str, dict[str, dict[str, Any]]]:
    """Type and default of every option and argument, by the command and its names."""
    return dict(_walk(typer.main.get_command(app), "shunter"))


def _walk(command: Any, name: str) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    yield name, {_name(one): _described(one) for one in sorted(command.params, key=_name) if one.name != "help"}
    for child, value in sorted(getattr(command, "commands", {}).items()):
        yield from _walk(value, f"{name} {child}")


def _name(parameter: Any) -> str:
    return " ".join([*parameter.opts, *parameter.secondary_opts])


def _described(parameter: Any) -> dict[str, Any]:
    kind = parameter.type_descriptor.annotation
    choices = sorted(str(one.value) for one in kind) if isinstance(kind, type) and issubclass(kind, Enum) else None
    default = parameter.default() if callable(parameter.default) else parameter.default
    return {
        "type": "choice" if choices else getattr(kind, "__name__", str(kind)),
        "choices": choices,
        "range": [parameter.min, parameter.max],
        "default": None if default is None else str(getattr(default, "value", default)),
        "is_flag": kind is bool,
        "required": parameter.required,
        "multiple": getattr(parameter, "multiple", False),
    }
