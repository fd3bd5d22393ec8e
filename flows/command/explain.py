"""The command `shunter explain`, which explains error codes."""

from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from shunter.errors import RequestError
from shunter.flows.command.rendering import TextTable, print_table
from shunter.flows.command.terminal import console, one_sentence_errors
from shunter.yaml_file import load_yaml


class ErrorCode(NamedTuple):
    """Meaning of an error code.

    Attributes:
        exit_code: Exit code of a command with this error.
        cause: Cause of the error.
        remedy: Advice for the user.
    """

    exit_code: int
    cause: str
    remedy: str


@cache
def error_codes() -> dict[str, ErrorCode]:
    """Return the meaning of every error code; `docs/reference/errors.md` has the same rows."""
    rows = load_yaml(Path(__file__).with_name("error_codes.yaml").read_text(encoding="utf-8"))
    return {name: ErrorCode(**row) for name, row in rows.items()}


def explain(
    code: Annotated[
        str | None,
        typer.Argument(help="Error code, as --json shows it, or exit code; if omitted, all codes are listed."),
    ] = None,
) -> None:
    """Explain an error code: its cause and its remedy."""
    with one_sentence_errors():
        print_table(console, codes_table(code))


def codes_table(code: str | None) -> TextTable:
    """Return the rows of a code, of the codes that share an exit code, or of all codes.

    Raises:
        RequestError: The code does not exist.
    """
    found = {name: one for name, one in error_codes().items() if code in (None, name, str(one.exit_code))}
    if not found:
        raise RequestError(f"There is no error code {code!r}: `shunter explain` lists all of them.")
    rows = [(name, str(one.exit_code), one.cause, one.remedy) for name, one in found.items()]
    if len(rows) == 1:
        titles = ("Code", "Exit code", "Cause", "Remedy")
        return TextTable((), list(zip(titles, rows[0], strict=True)))
    return TextTable(("code", "exit", "cause", "remedy"), rows)
