"""What passes by itself is tried again, what a user must mend is reported at once."""

import errno
import socket
import sqlite3
import urllib.error
from email.message import Message
from typing import NoReturn

import pytest

from shunter.errors import DataError, InfeasibleError, ProcessLostError, RequestError, TrackingError, TrainingError
from shunter.tasks.retries import RETRIES, is_passing, retried


def http_error(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://somewhere", status, "words", Message(), None)


def caused_by(error: Exception, cause: Exception) -> Exception:
    """As `error` looks when it was raised from `cause`."""
    try:
        try:
            raise cause
        except Exception as caught:
            raise error from caught
    except Exception as raised:
        return raised


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        TimeoutError(),
        OSError(errno.ESTALE, "stale file handle"),
        OSError(errno.EIO, "input/output error"),
        sqlite3.OperationalError("database is locked"),
        socket.gaierror(socket.EAI_AGAIN, "temporary failure"),
        http_error(503),
        ProcessLostError("ended by SIGKILL"),
        urllib.error.URLError(ConnectionResetError()),
    ],
    ids=repr,
)
def test_fault_of_a_server_a_network_or_a_busy_database_passes_also_behind_our_own_error(error: Exception) -> None:
    cause = error.reason if type(error) is urllib.error.URLError else error
    assert isinstance(cause, Exception)
    assert is_passing(cause)
    assert is_passing(caused_by(TrackingError("The store failed."), caused_by(ValueError(), cause)))


@pytest.mark.parametrize(
    "error",
    [
        RequestError("no such option"),
        DataError("no such column"),
        InfeasibleError("no placement"),
        TrainingError("the loss is nan"),
        FileNotFoundError(errno.ENOENT, "no such file"),
        PermissionError(errno.EACCES, "not permitted"),
        OSError(errno.ENOSPC, "no space left on device"),
        sqlite3.OperationalError("no such table: runs"),
        socket.gaierror(socket.EAI_NONAME, "name not known"),
        http_error(404),
        MemoryError(),
        caused_by(DataError("cannot be read"), FileNotFoundError(errno.ENOENT, "no such file")),
    ],
    ids=repr,
)
def test_what_a_user_must_mend_does_not(error: Exception) -> None:
    assert not is_passing(error)


def test_store_that_nobody_answers_for_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    from shunter.tracking.history import read_runs

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{probe.getsockname()[1]}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        with pytest.raises(TrackingError) as raised:
            read_runs()
    assert is_passing(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(("error", "attempts"), [(TimeoutError(), 1 + RETRIES), (DataError("a mistake"), 1)])
def test_task_is_repeated_for_the_one_and_not_for_the_other(
    prefect_server: None, error: Exception, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect import flow, task

    made = 0

    @task(**{**retried(), "retry_delay_seconds": 0})
    def fails() -> NoReturn:
        nonlocal made
        made += 1
        raise error

    @flow
    def around() -> None:
        fails()

    with pytest.raises(type(error)):
        around()
    assert made == attempts


def test_each_attempt_waits_longer() -> None:
    delays = retried()["retry_delay_seconds"](RETRIES)
    assert delays == sorted(delays)
    assert len(set(delays)) == RETRIES
