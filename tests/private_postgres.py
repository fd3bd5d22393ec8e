"""A private cluster of PostgreSQL, for tests."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "reader"
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@contextmanager
def private_postgres() -> Iterator[str]:
    """Yield the address of a database, whose user is `USER`; skip the test where PostgreSQL cannot be started."""
    if not BINARIES or (os.geteuid() == 0 and shutil.which("setpriv") is None):
        pytest.skip("there is no PostgreSQL that this user can start")
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="pg-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        as_user: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
            as_user = ["setpriv", "--reuid=nobody", "--clear-groups", "--"]

        def run(*command: str) -> None:
            subprocess.run([*as_user, f"{BINARIES[-1]}/{command[0]}", *command[1:]], check=True, cwd="/", timeout=120)

        data = f"{folder}/data"
        run("initdb", "-D", data, "-U", USER, "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield f"postgresql://127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
