"""Processes for tests that start many, of `PythonProcess` and of Ray: forks of one that has torch and TorchRec loaded.

A process would load them anew, which takes more of the processor's time than what it does in a test. How processes are
started in truth has tests of its own (`tests/hardware/devices`, `tests/engine/executors/test_separate_process.py`).

A node of Ray starts a small program instead of its worker's; that asks for the fork, and lasts as long as this.

Each is forked by a keeper, who waits for it and tells the test its exit code.
"""

import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from shunter.settings import PROJECT_ROOT

LOADED = (
    "torchrec.distributed.planner",
    "shunter.extensions.distributed.executors.process_group_worker",
    "shunter.engine.executors.separate_process_worker",
    "shunter.extensions.distributed.executors.ray.node_trainer",
)
AGAIN = LOADED[1:3]  # they are run, so they may not be there already
LONGEST_MESSAGE_BYTES, MOST_DESCRIPTORS, FREE_DESCRIPTOR = 2**18, 16, 200
# What a node runs for a worker: the worker's program and arguments, behind flags of Python.
RAY_WORKER = """
import json, os, socket, sys
from argparse import ArgumentParser
parser = ArgumentParser(allow_abbrev=False)
for name in ("--serialized-runtime-env-context", "--language"):
    parser.add_argument(name)
known, command = parser.parse_known_args()
assert known.language in (None, "PYTHON")
chosen = json.loads(known.serialized_runtime_env_context or "{{}}").get("env_vars", {{}})
script = next(place for place, word in enumerate(command) if not word.startswith("-"))
asked = {{"script": command[script], "arguments": command[script + 1:], "environment": {{**os.environ, **chosen}}}}
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {longest})
connection.connect({address!r})
socket.send_fds(connection, [json.dumps({{**asked, "numbers": []}}).encode()], [1])
connection.recv(16)
sys.exit(int(connection.recv(16) or 1))
"""


@contextmanager
def warm_starter(folder: Path) -> Iterator[SimpleNamespace]:
    """Load the libraries.

    Args:
        folder: An empty one, for the program that a node of Ray runs.

    Yields:
        `start_python`, which stands in for the function by which `PythonProcess` starts a process, and `ray_node`,
        arguments of a node.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_MESSAGE_BYTES)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(folder / "socket"))
    listener.listen()
    program = folder / "ray_worker.py"
    program.write_text(RAY_WORKER.format(address=str(folder / "socket"), longest=LONGEST_MESSAGE_BYTES))
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    passed = [theirs.fileno(), listener.fileno()]
    # A fork shows this command as its own, by which a test may look for it.
    command = [sys.executable, "-P", "-m", __name__, *map(str, passed), "shunter.engine.executors"]
    server = subprocess.Popen(command, pass_fds=passed, env=environment, start_new_session=True)
    listener.close()
    theirs.close()
    lock = threading.Lock()

    def start(*arguments: str, environment: Mapping[str, str], folder: Path, **options: Any) -> Forked:
        assert folder == Path.cwd()
        return Forked(ours, lock, [sys.executable, "-P", *arguments], env=environment, **options)

    try:
        yield SimpleNamespace(start_python=start, ray_node={"setup_worker_path": str(program)})
    finally:
        ours.close()  # which ends it
        server.wait()


class Forked:
    """What `PythonProcess` uses of a `subprocess.Popen`.

    Args:
        server: Connection to the one that has the libraries.
        lock: Held while it is asked.
        command: `python -P -m module arguments`.
        env: All its variables.
        stdout: Its output and its errors.
        pass_fds: Open files that it inherits.
        others: What is the same for all of them.
    """

    def __init__(
        self,
        server: socket.socket,
        lock: threading.Lock,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: IO[bytes],
        pass_fds: Sequence[int] = (),
        **others: Any,
    ) -> None:
        assert others.pop("start_new_session")
        assert others == {"stdin": subprocess.DEVNULL, "stderr": stdout}
        self.returncode: int | None = None
        self._keeper, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked = {"module": command[3], "arguments": command[4:], "environment": dict(env), "numbers": list(pass_fds)}
        with theirs, lock:
            socket.send_fds(server, [json.dumps(asked).encode()], [theirs.fileno(), stdout.fileno(), *pass_fds])
        self.pid = int(self._keeper.recv(16))

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            self._keeper.settimeout(timeout)
            try:
                self.returncode = int(self._keeper.recv(16) or -signal.SIGKILL)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0) from None
            self._keeper.close()
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def serve(connection: socket.socket, listener: socket.socket) -> dict[str, Any] | None:
    """Fork whatever is asked for; returns there what it is to be, and here None when the test asks no more.

    Args:
        connection: To the test.
        listener: Where nodes of Ray ask.
    """
    while True:
        with suppress(ChildProcessError):  # there is no keeper
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if connection in select.select([connection, listener], [], [])[0]:
            message, received, _, _ = socket.recv_fds(connection, LONGEST_MESSAGE_BYTES, MOST_DESCRIPTORS)
            if not message:
                return None
        else:
            asking, _ = listener.accept()
            message, received, _, _ = socket.recv_fds(asking, LONGEST_MESSAGE_BYTES, 1)
            received = [asking.detach(), *received]
        if message and os.fork() == 0:
            connection.close()
            listener.close()
            return _kept(json.loads(message), *received)
        for descriptor in received:
            os.close(descriptor)


def _kept(asked: dict[str, Any], test: int, output: int, *inherited: int) -> dict[str, Any]:
    """As its keeper, fork the process, tell its number and its end; returns in the process."""
    child = os.fork()
    if child:
        for descriptor in (output, *inherited):
            os.close(descriptor)
        with socket.socket(fileno=test) as connection:
            connection.send(str(child).encode())
            if "script" in asked:
                threading.Thread(target=_ends_with, args=(connection, child), daemon=True).start()
            _, status = os.waitpid(child, 0)
            with suppress(OSError):  # nobody is left who would hear it
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.setsid()
    os.close(test)
    nothing = os.open(os.devnull, os.O_RDONLY)
    wanted = {0: nothing, 1: output, 2: output, **dict(zip(asked["numbers"], inherited, strict=True))}
    moved = {number: fcntl.fcntl(have, fcntl.F_DUPFD, FREE_DESCRIPTOR) for number, have in wanted.items()}
    for have in {nothing, output, *inherited}:
        os.close(have)
    for number, have in moved.items():
        os.dup2(have, number)
        os.close(have)
    return asked


def _ends_with(connection: socket.socket, child: int) -> None:
    """End the process at once when the one that asked for it is gone: with its node, a worker of Ray is."""
    with suppress(OSError):
        connection.recv(1)
        os.kill(child, signal.SIGKILL)


def main(connection: int, listener: int) -> None:
    """Load the libraries, and become what is asked for."""
    for module in LOADED:
        import_module(module)
    for module in AGAIN:
        del sys.modules[module]
    gc.freeze()
    asked = serve(socket.socket(fileno=connection), socket.socket(fileno=listener))
    if asked is None:
        return
    os.environ.clear()
    os.environ.update(asked["environment"])
    import torch

    if threads := os.environ.get("OMP_NUM_THREADS"):  # what its start would have read
        torch.set_num_threads(int(threads))
    sys.argv = [asked.get("script") or asked["module"], *asked["arguments"]]
    if "script" in asked:
        runpy.run_path(asked["script"], run_name="__main__")
    else:
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
