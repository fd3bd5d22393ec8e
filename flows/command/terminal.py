"""What every command says on the terminal, errors too: one sentence each."""

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import typer

from shunter import quarantine
from shunter.errors import ShunterError
from shunter.masked_console import Console
from shunter.secrets import without_secrets

AGAIN = "Interrupted: run the same command again to resume where it stopped."
INTERRUPTED = 130  # what a shell reports for Ctrl-C
BROKEN_PIPE = 141  # and for a reader that went away

console = Console(emoji=False)  # a name such as a:b: is none
errors = Console(stderr=True, emoji=False)


@contextlib.contextmanager
def one_sentence_errors(interrupted: str = "Interrupted.", *, as_json: bool = False) -> Iterator[None]:
    """Turn what a user can fix into one sentence and an exit code; `--debug` keeps the traceback.

    Args:
        interrupted: Sentence after Ctrl-C.
        as_json: Whether to print the error as a JSON object on standard output too.
    """
    try:
        yield
    except KeyboardInterrupt:
        say(interrupted)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # whoever read has read enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still to be written goes nowhere
        raise SystemExit(BROKEN_PIPE) from None
    except ShunterError as error:
        if os.environ.get("SHUNTER_DEBUG") == "1":
            raise
        if as_json:
            from shunter.flows.command.decision_json import error_as_json

            print_json(error_as_json(error))
        say(f"Error: {error}")
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        if os.environ.get("SHUNTER_DEBUG") == "1":
            raise
        say(f"Unexpected error, please report it with the output of `shunter --debug`: {type(error).__name__}: {error}")
        raise SystemExit(1) from None


def print_json(value: Any) -> None:
    """Print one JSON object on standard output, and nothing else."""
    typer.echo(without_secrets(json.dumps(value, indent=1, allow_nan=False)))


def print_line(sentence: str) -> None:
    """Print one sentence on standard output, whatever it holds and however long it is."""
    console.print(without_secrets(sentence), markup=False, highlight=False, soft_wrap=True)


def say(sentence: str) -> None:
    """Print one sentence on stderr, whatever it holds and however long it is."""
    errors.print(without_secrets(sentence), markup=False, highlight=False, soft_wrap=True)


class Notices(logging.Handler):
    """Logging handler that prints each record as one line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message."""
        say(record.getMessage())


def print_quarantines() -> None:
    """Print what is moved into the quarantine, whatever else is configured to be logged."""
    log = logging.getLogger(quarantine.__name__)
    if not any(isinstance(handler, Notices) for handler in log.handlers):
        log.addHandler(Notices())


def report_undelivered() -> None:
    """Say how much MLflow has not received yet, and what hands it over; nothing when it has everything."""
    from shunter.tracking.store import undelivered

    if waiting := undelivered():
        say(f"MLflow was away, {waiting} entries wait for it: `shunter sync` hands them over when it is back.")
