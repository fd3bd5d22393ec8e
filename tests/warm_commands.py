"""`shunter` for tests that give many commands: each is a fork of one process that has the heavy libraries loaded.

A command would load them anew, which takes more of the processor's time than what most commands do. What reads the
environment when it is imported is left to each command: Prefect, and with it the flows and their steps.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

LOADED = (
    *("torch", "numpy", "pandas", "polars", "pyarrow.parquet", "scipy.stats", "sklearn.metrics"),
    *("httpx", "jinja2", "matplotlib.figure", "pydantic_settings", "rich.progress", "typer"),
    *("scipy.linalg", "scipy.optimize", "sklearn.ensemble"),
    *(
        "optuna",
        "sqlalchemy.orm",
        "alembic",
        "mlflow.tracking",
        "mlflow.pyfunc",
        "mlflow.store.tracking.sqlalchemy_store",
    ),
    *("anyio", "fsspec", "graphviz", "griffe", "jsonschema", "pendulum", "prometheus_client", "websockets"),
    *(
        "shunter.engine.ensemble.result",
        "shunter.engine.ensemble.serving_cost",
        "shunter.engine.executors.this_machine",
        "shunter.engine.loop.trainer",
    ),
    *(
        "shunter.engine.profiling.profiles",
        "shunter.engine.ranking.result",
        "shunter.extensions.stalls.advice",
        "shunter.engine.trained_model",
    ),
    *(
        "shunter.hardware.devices.discovery",
        "shunter.ingestion.sources.open",
        "shunter.models.registry",
        "shunter.planner.decide",
        "shunter.search.search",
    ),
    *("shunter.extensions.distributed.table_planner", "shunter.extensions.fleet.policies"),
)
READS_THE_ENVIRONMENT = "prefect"
LONGEST_MESSAGE_BYTES = 2**20
CLIENT = """#!{python} -IS
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({address!r})
asked = {{"arguments": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(connection, [json.dumps(asked).encode()], [0, 1, 2])
sys.exit(int(connection.recv(16)))
"""


@contextmanager
def warm_commands(folder: Path) -> Iterator[Path]:
    """Start the process, and give the folder that holds a program `shunter`, to be put first on the PATH."""
    address = str(folder / "socket")
    (folder / "bin").mkdir()
    program = folder / "bin" / "shunter"
    program.write_text(CLIENT.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        command = [sys.executable, "-m", "tests.warm_commands", str(listener.fileno())]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], start_new_session=True)
    try:
        yield program.parent
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with a command that hangs
        process.wait()


def next_command(listener: socket.socket) -> dict[str, Any]:
    """Wait for commands, one after another; each returns from here in a process of its own."""
    while True:
        connection, _ = listener.accept()
        with connection:
            message, streams, _, _ = socket.recv_fds(connection, LONGEST_MESSAGE_BYTES, 3)
            child = os.fork()
            if child == 0:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
            for stream in streams:
                os.close(stream)
            if child == 0:
                return json.loads(message)
            _, status = os.waitpid(child, 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def main(listener_number: int) -> None:
    """Load the libraries, and become the command that is asked for."""
    for module in LOADED:
        import_module(module)
    assert READS_THE_ENVIRONMENT not in sys.modules
    gc.freeze()  # nobody looks through it for garbage, which would copy it too
    with socket.socket(fileno=listener_number) as listener:
        asked = next_command(listener)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = asked["arguments"]
    # Those of before know whether the files that they were opened for can be sought in.
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    from shunter.flows.cli import main as shunter

    shunter()


if __name__ == "__main__":
    main(int(sys.argv[1]))
