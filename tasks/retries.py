"""Retries of a step after transient faults, with growing delays."""

import errno
import socket
import sqlite3
import urllib.error
from typing import Any, TypedDict

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import exponential_backoff

from shunter.errors import ProcessLostError, causes_of

RETRIES = 3
FIRST_DELAY_SECONDS = 2.0  # doubled after each attempt
PASSING = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EIO,
    errno.ESTALE,  # the server of a network file system was restarted
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.ETIMEDOUT,
}
BUSY_STATUS = {429, 502, 503, 504}


class Retried(TypedDict):
    """Retry options of a Prefect task."""

    retries: int
    retry_delay_seconds: Any
    retry_jitter_factor: float
    retry_condition_fn: Any


def is_passing(error: BaseException) -> bool:
    """Return True if the same attempt may succeed later: a busy database, an unreachable server, a killed process.

    The causes of an error count, too, because Shunter's errors wrap those of libraries. A missing file, a full disk, a
    wrong value and a NaN loss are not transient.
    """
    return any(_passes(cause) for cause in causes_of(error))


def retried() -> Retried:
    """Return options of a task that may be repeated as a whole: retries after 2, 4 and 8 seconds, with jitter."""
    return Retried(
        retries=RETRIES,
        retry_delay_seconds=exponential_backoff(FIRST_DELAY_SECONDS),
        retry_jitter_factor=0.5,
        retry_condition_fn=_has_passing_fault,
    )


def _has_passing_fault(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_passing(error)


def _passes(error: BaseException) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code in BUSY_STATUS
    if isinstance(error, ConnectionError | TimeoutError | ProcessLostError):
        return True
    if isinstance(error, sqlite3.OperationalError):
        return "locked" in str(error) or "busy" in str(error)
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN  # the name server is unreachable
    return isinstance(error, OSError) and error.errno in PASSING
