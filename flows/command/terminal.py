"""Output of all commands on the terminal, with errors of one sentence."""

import contextlib
import errno
import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from typing import Any

import typer

from shunter import quarantine
from shunter.errors import OutputError, ShunterError, StorageError, TrackingError, find_cause
from shunter.masked_console import Console
from shunter.secrets import without_secrets

AGAIN = "Interrupted: run the same command again to resume where it stopped."
INTERRUPTED = 130  # exit code of shells after Ctrl-C
BROKEN_PIPE = 141  # exit code of shells after a broken pipe

console = Console(emoji=False)  # a name may contain `:b:`, which is not an emoji
errors = Console(stderr=True, emoji=False)
# Error numbers and SQLite errors of storage that cannot be written to.
_NOT_WRITTEN = {
    getattr(errno, name) for name in ("EACCES", "EBADF", "EDQUOT", "EFBIG", "EIO", "ENOSPC", "EPERM", "EROFS")
}
_DATABASE_NOT_WRITTEN = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}


@contextlib.contextmanager
def one_sentence_errors(interrupted: str = "Interrupted.", *, as_json: bool = False) -> Iterator[None]:
    """Convert errors that a user can fix to one sentence and an exit code; `--debug` keeps the traceback.

    Args:
        interrupted: Sentence after Ctrl-C.
        as_json: Whether to print the error as a JSON object on standard output too.
    """
    try:
        yield
    except KeyboardInterrupt:
        say(interrupted)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard the remaining output
        raise SystemExit(BROKEN_PIPE) from None
    except Exception as error:
        if os.environ.get("SHUNTER_DEBUG") == "1":
            raise
        raise SystemExit(_report(error, as_json=as_json)) from None


def _report(error: Exception, *, as_json: bool = False) -> int:
    """Print an error as one sentence, and return the exit code."""
    known = error if isinstance(error, ShunterError) else _storage_error(error)
    if known is None:
        say(f"Unexpected error, please report it with the output of `shunter --debug`: {type(error).__name__}: {error}")
        return 1
    if as_json and not isinstance(known, OutputError):
        from shunter.flows.command.tables import error_as_json

        try:
            print_json(error_as_json(known))
        except OutputError as second:
            return _report(second)
    if isinstance(known, OutputError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard the remaining output
    if not (isinstance(known, OutputError) and known.is_pipe_closed):
        say(f"Error: {known}")
    return known.exit_code


def _storage_error(error: BaseException) -> StorageError | None:
    """Return a storage error if a library's error was caused by storage that cannot be written to; otherwise None."""
    system = find_cause(error, OSError)
    if system is not None and system.errno in _NOT_WRITTEN:
        return StorageError(system.filename and str(system.filename), system.strerror or type(system).__name__)
    database = find_cause(error, sqlite3.Error)
    code = getattr(database, "sqlite_errorcode", 0) & 0xFF
    return StorageError(None, str(database)) if code in _DATABASE_NOT_WRITTEN else None


def print_json(value: Any) -> None:
    """Print one JSON object on standard output, and nothing else."""
    typer.echo(without_secrets(json.dumps(value, indent=1, allow_nan=False)))


def print_line(sentence: str) -> None:
    """Print one sentence on standard output, without markup and line breaks."""
    console.print(without_secrets(sentence), markup=False, highlight=False, soft_wrap=True)


def print_run(run_id: str | None) -> None:
    """Print the address of a run in MLflow; nothing without a run, or while the store cannot be reached."""
    from shunter.tracking.links import run_link

    with contextlib.suppress(TrackingError):
        if run_id is not None:
            print_line(f"MLflow: {run_link(run_id)}")


def say(sentence: str) -> None:
    """Print one sentence on standard error, without markup and line breaks."""
    with contextlib.suppress(OSError):  # the stream is closed or full
        errors.print(without_secrets(sentence), markup=False, highlight=False, soft_wrap=True)


class Notices(logging.Handler):
    """Logging handler that prints each record as one line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message of a log record."""
        say(record.getMessage())


def print_quarantines() -> None:
    """Print each quarantined file, whatever the logging configuration is."""
    log = logging.getLogger(quarantine.__name__)
    if not any(isinstance(handler, Notices) for handler in log.handlers):
        log.addHandler(Notices())


def report_undelivered() -> None:
    """Print the number of entries that MLflow has not received yet, with the command to upload them."""
    from shunter.tracking.store import undelivered

    if waiting := undelivered():
        say(f"MLflow was unreachable, and {waiting} entries are queued: upload them with `shunter sync`.")
