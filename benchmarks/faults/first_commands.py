"""First commands of a home, killed at a random moment, statement or byte, and the next command there.

Each command is a fork of one process that has MLflow loaded, because loading takes most of a command's time.
"""

import multiprocessing
import os
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from sqlite3 import dbapi2
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["alembic.command", "mlflow.store.tracking.sqlalchemy_store", "shunter.flows.command.cli", "shunter.tracking.store"]
)
KILLED = -signal.SIGKILL
KILLED_IN_WRITE = -signal.SIGXFSZ
LONGEST_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class FirstCommand:
    """Command that opens the tracking store, `shunter sync`.

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


@dataclass(frozen=True, kw_only=True)
class KilledFirstCommand:
    """Killed first command and the next one in the same home.

    Attributes:
        has_template: Whether the environment keeps a template of MLflow's tables.
        kill_at_second: Time after its start at which it was killed.
        has_store: Whether it had begun the store.
        next_exit_code: Exit code of the next command.
    """

    has_template: bool
    kill_at_second: float
    has_store: bool
    next_exit_code: int


def first_commands_by_outcome(found: Sequence[KilledFirstCommand]) -> dict[str, int]:
    """Count killed first commands, and the homes in which the next command failed."""
    return {
        "first_commands_killed": len(found),
        "bricked_homes": sum(one.next_exit_code != 0 for one in found),
    }


def kill_first_commands(
    folder: Path, kills: int, deadline: float, keep: Callable[[KilledFirstCommand], None], seed: int = 0
) -> None:
    """Kill first commands at random moments, in environments with and without a template in turn.

    Args:
        folder: Folder of the homes.
        kills: Number of kills.
        deadline: Time by `time.monotonic` after which no further command begins.
        keep: Function that is given each result.
        seed: Seed of the moments.
    """
    random = Random(seed)
    prefixes = [Path(sys.prefix), folder / "no environment"]
    seconds = [
        _seconds(FirstCommand(home=folder / f"whole-{number}", prefix=one)) for number, one in enumerate(prefixes)
    ]
    made = number = 0
    while made < kills and time.monotonic() < deadline:
        which, number = number % len(prefixes), number + 1
        moment = random.uniform(0.0, seconds[which])
        command = FirstCommand(home=folder / str(number), prefix=prefixes[which])
        if not _is_killed(command, moment):
            continue
        has_store = (command.home / "mlflow" / "mlflow.db").exists()
        [code] = run(command)
        keep(
            KilledFirstCommand(has_template=which == 0, kill_at_second=moment, has_store=has_store, next_exit_code=code)
        )
        made += 1


def _is_killed(command: FirstCommand, seconds: float) -> bool:
    """Kill a command after a time; return False if it had ended before."""
    process = CONTEXT.Process(target=_become, args=(command,))
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode == KILLED


def run(*commands: FirstCommand) -> list[int]:
    """Run commands at once and return their exit codes, negative for the signal that ended one."""
    processes = [CONTEXT.Process(target=_become, args=(command,)) for command in commands]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LONGEST_SECONDS)
    return [_exit_code(process) for process in processes]


def _exit_code(process: BaseProcess) -> int:
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"A first command did not end within {LONGEST_SECONDS:g} seconds.")
    return process.exitcode


def _seconds(command: FirstCommand) -> float:
    began = time.monotonic()
    run(command)
    return time.monotonic() - began


def _become(command: FirstCommand) -> None:
    os.environ |= {"SHUNTER_HOME": str(command.home), **command.variables}
    sys.prefix = str(command.prefix)
    if command.kill_at_statement:
        _kill_at_statement(command.kill_at_statement)
    if command.kill_at_byte:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (command.kill_at_byte, command.kill_at_byte))
    if command.as_mlflow:
        _open_by_mlflow()
        return
    from shunter.flows.cli import main

    sys.argv = ["shunter", "sync", "--quiet"]
    main()


def _open_by_mlflow() -> None:
    from mlflow import MlflowClient

    from shunter.tracking.store import tracking_uri

    MlflowClient(tracking_uri())


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
