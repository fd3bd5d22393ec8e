"""Asking a store again that fails or is away, for what cannot wait in the outbox because its answer is needed."""

import json
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from shunter.errors import first_line
from shunter.masked_console import Console
from shunter.secrets import without_secrets
from shunter.tracking.entries import AWAY
from shunter.tracking.outbox import StoreAwayError
from shunter.tracking.store import is_file_store, tracking_address

SERVER_PATIENCE_SECONDS = 600.0  # with one call, after which whoever gives the command again goes on there
FILE_PATIENCE_SECONDS = 15.0  # with a database of our own, which others only lock for moments
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 30.0  # each delay is twice the one before

Answer = TypeVar("Answer")


class PatientCaller:
    """Makes calls again and again until the store takes them; says once that it waits.

    Args:
        what: What waits, for the sentence to the user.
        patience_seconds: With each call; chosen by the kind of the store if omitted.
    """

    def __init__(self, what: str, patience_seconds: float | None = None) -> None:
        chosen = FILE_PATIENCE_SECONDS if is_file_store() else SERVER_PATIENCE_SECONDS
        self._patience_seconds = chosen if patience_seconds is None else patience_seconds
        self._what, self._has_said = what, False

    def __call__(self, call: Callable[[], Answer]) -> Answer:
        """What the call gives, once the store answers.

        Args:
            call: Function that changes nothing where it is called once more.

        Raises:
            Exception: What the call raises: at once where it does not pass by itself, else when the patience is over.
        """
        deadline = time.monotonic() + self._patience_seconds
        for delay_seconds in _delays():
            try:
                return call()
            except Exception as error:
                if not is_passing(error) or time.monotonic() + delay_seconds > deadline:
                    raise
                self._say(error, delay_seconds)
            time.sleep(delay_seconds)
        raise AssertionError("the delays have no end")

    def _say(self, error: Exception, delay_seconds: float) -> None:
        """Tell of it once, and not of what passes within a second."""
        if self._has_said or delay_seconds < 1.0:
            return
        self._has_said = True
        sentence = (
            f"The tracking store {tracking_address()} does not take {self._what} yet "
            f"({without_secrets(first_line(error))[:200]}): it is asked again until it does, for "
            f"{self._patience_seconds:.0f} seconds at most."
        )
        Console(stderr=True).print(sentence, markup=False, highlight=False, soft_wrap=True)


def is_passing(error: Exception) -> bool:
    """Whether the same call may succeed later: the store is away, fails inside itself, or its answer makes no sense."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException

    if isinstance(error, MlflowException):
        return error.error_code in AWAY
    return isinstance(error, RequestException | StoreAwayError | json.JSONDecodeError)


def _delays() -> Iterator[float]:
    delay_seconds = FIRST_DELAY_SECONDS
    while True:
        yield delay_seconds
        delay_seconds = min(2 * delay_seconds, LONGEST_DELAY_SECONDS)
