"""Options of all commands for the output, and the option `--accept`, which trusts a model."""

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from shunter.flows.command.help import show_all
from shunter.flows.command.terminal import console, one_sentence_errors
from shunter.masked_console import VARIABLE, VERBOSE_VARIABLE

QUIET = typer.Option("--quiet", "-q", help="Print errors only. JSON and requested rows are still printed.")
ACCEPT = typer.Option("--accept", help="Fingerprint of an unsigned or foreign model that is trusted; repeatable.")
VERBOSE = typer.Option("--verbose", help="Print all details, and the run's log on standard error.")
HELP_ALL = typer.Option("--help-all", help="Show every option.", is_eager=True, callback=show_all)


def with_output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with `--help-all`, `--quiet` and `--verbose`, which take effect before the command begins."""

    @functools.wraps(command)
    def with_them(*arguments: Any, quiet: bool, verbose: bool, help_all: bool, **options: Any) -> None:
        asked = {VARIABLE: "1"} if quiet else {}
        asked |= {VERBOSE_VARIABLE: "1", "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO"} if verbose else {}
        with _environment(asked):
            console.quiet = quiet
            try:
                command(*arguments, **options)
            finally:
                console.quiet = False

    added = {"quiet": QUIET, "verbose": VERBOSE, "help_all": HELP_ALL}
    return _extended(
        command, with_them, *(option_parameter(name, bool, option, False) for name, option in added.items())
    )


def with_accepted_models(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with `--accept`, which takes effect before the command begins."""

    @functools.wraps(command)
    def with_them(*arguments: Any, accept: list[str] | None, **options: Any) -> None:
        with one_sentence_errors():
            from shunter.tracking.registry.signing import accept_model

            for fingerprint in accept or ():
                accept_model(fingerprint)
        command(*arguments, **options)

    return _extended(command, with_them, option_parameter("accept", list[str] | None, ACCEPT, None))


def option_parameter(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    """Return the keyword parameter of a function that Typer reads as an option of a type."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _extended(
    command: Callable[..., None], wrapped: Callable[..., None], *options: inspect.Parameter
) -> Callable[..., None]:
    """Return the wrapped command with the signature of the command and additional options."""
    signature = inspect.signature(command)
    parameters = [*signature.parameters.values(), *options]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process and its children for the duration of the `with` block."""
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
