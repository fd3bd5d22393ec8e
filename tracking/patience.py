"""Retries of calls to an unreachable or failing store, for calls that cannot be queued."""

import json
import time
from collections.abc import Callable
from typing import TypeVar

from shunter.errors import first_line
from shunter.masked_console import Console
from shunter.secrets import without_secrets
from shunter.tracking.entries import AWAY
from shunter.tracking.outbox import StoreAwayError
from shunter.tracking.store import is_file_store, tracking_address

SERVER_PATIENCE_SECONDS = 600.0  # retry time of one call to a server; a repeated command resumes at this call
FILE_PATIENCE_SECONDS = 15.0  # retry time of one call to the home's SQLite file, which is only locked briefly
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 30.0  # each delay is twice the previous delay

Answer = TypeVar("Answer")


class PatientCaller:
    """Caller that retries calls until the store accepts them, and prints one notice about the waiting."""

    def __init__(self, what: str) -> None:
        self._patience_seconds = FILE_PATIENCE_SECONDS if is_file_store() else SERVER_PATIENCE_SECONDS
        self._what, self._has_said = what, False

    def __call__(self, call: Callable[[], Answer]) -> Answer:
        """Return the result of the call, retried while the store fails temporarily.

        Raises:
            Exception: Any error of the call: a permanent error at once, a temporary error after the retry time.
        """
        deadline = time.monotonic() + self._patience_seconds
        delay_seconds = FIRST_DELAY_SECONDS
        while True:
            try:
                return call()
            except Exception as error:
                if not is_passing(error) or time.monotonic() + delay_seconds > deadline:
                    raise
                self._say(error, delay_seconds)
            time.sleep(delay_seconds)
            delay_seconds = min(2 * delay_seconds, LONGEST_DELAY_SECONDS)

    def _say(self, error: Exception, delay_seconds: float) -> None:
        """Print the notice once, but not for delays below one second."""
        if self._has_said or delay_seconds < 1.0:
            return
        self._has_said = True
        sentence = (
            f"The tracking store {tracking_address()} does not accept {self._what} yet "
            f"({without_secrets(first_line(error))[:200]}): retrying, for "
            f"{self._patience_seconds:.0f} seconds at most."
        )
        Console(stderr=True).print(sentence, markup=False, highlight=False, soft_wrap=True)


def is_passing(error: Exception) -> bool:
    """Return True if the same call may succeed later: no connection, an internal error, or an invalid answer."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException

    if isinstance(error, MlflowException):
        return error.error_code in AWAY
    return isinstance(error, RequestException | StoreAwayError | json.JSONDecodeError)
