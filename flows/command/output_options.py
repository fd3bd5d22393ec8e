"""What every command takes: how much it says while it works."""

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from shunter.flows.command.terminal import console
from shunter.quiet import VARIABLE

QUIET = typer.Option("--quiet", "-q", help="Print errors alone; JSON, and rows that are asked for, come all the same.")
VERBOSE = typer.Option("--verbose", help="Print the log of the run too, as Prefect keeps it, on standard error.")


def with_output_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with `--quiet` and `--verbose`, which take effect before it begins."""
    signature = inspect.signature(command)
    switches = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])
        for name, option in (("quiet", QUIET), ("verbose", VERBOSE))
    ]

    @functools.wraps(command)
    def with_them(*arguments: Any, quiet: bool, verbose: bool, **options: Any) -> None:
        asked = {VARIABLE: "1"} if quiet else {}
        asked |= {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO"} if verbose else {}
        with _environment(asked):
            console.quiet = quiet
            try:
                command(*arguments, **options)
            finally:
                console.quiet = False

    parameters = [*signature.parameters.values(), *switches]
    with_them.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    with_them.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_them


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for this process and those that it starts, for the length of the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
