"""Commands that open the tracking store, in processes that can be killed at any statement or byte.

Each is a fork of one process that has MLflow loaded.
"""

import multiprocessing
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import dbapi2
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["alembic.command", "mlflow.store.tracking.sqlalchemy_store", "shunter.tracking.store"])
KILLED = -signal.SIGKILL
KILLED_IN_WRITE = -signal.SIGXFSZ
LONGEST_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Command:
    """Command that opens the tracking store.

    Attributes:
        home: Home.
        prefix: Folder of the environment, which may keep a template of MLflow's tables.
        variables: Further variables of its environment.
        kill_at_statement: Number of the SQL statement, from 1, before which it is killed.
        kill_at_byte: Size of a file at which a write kills it.
        as_mlflow: Whether MLflow opens the store by itself.
    """

    home: Path
    prefix: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    kill_at_statement: int | None = None
    kill_at_byte: int | None = None
    as_mlflow: bool = False


def run(*commands: Command) -> list[int]:
    """Run commands at once and return their exit codes; 8 for a store that cannot be opened."""
    processes = [CONTEXT.Process(target=_open_store, args=(command,)) for command in commands]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LONGEST_SECONDS)
    return [_exit_code(process.exitcode) for process in processes]


def _exit_code(code: int | None) -> int:
    assert code is not None, "the command does not end"
    return code


def _open_store(command: Command) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    from shunter.errors import TrackingError
    from shunter.tracking.store import experiment_id, open_store, tracking_uri

    os.environ |= {"SHUNTER_HOME": str(command.home), **command.variables}
    sys.prefix = str(command.prefix)
    if command.kill_at_statement:
        _kill_at_statement(command.kill_at_statement)
    if command.kill_at_byte:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (command.kill_at_byte, command.kill_at_byte))
    try:
        if command.as_mlflow:
            MlflowClient(tracking_uri())
        else:
            experiment_id(open_store().mlflow)
    except (TrackingError, MlflowException, SQLAlchemyError) as error:
        print(error, file=sys.stderr)
        sys.exit(TrackingError.exit_code)


def _kill_at_statement(number: int) -> None:
    left = number

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = opened(*arguments, **options)
        connection.set_trace_callback(count)
        return connection

    opened = sqlite3.connect
    sqlite3.connect = dbapi2.connect = connect
