"""Groups of Python processes on this machine that are started, monitored and ended together.

The measuring process calls `run_group` with the name of a module that ends with

    if __name__ == "__main__":
        run_member(main)

where `main(folder, report)` runs in each process and joins torch's default group with `join_group`.
"""

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import shunter.errors
from shunter.errors import HardwareError, ShunterError
from shunter.hardware.devices.python_process import PythonProcess

Report = Callable[[str, Any], None]
POLL_SECONDS, GRACE_SECONDS = 0.1, 5.0
LAST_WORDS_SECONDS = 1.0  # a process that lost its connection may end before the process that caused the loss
TIMEOUT = timedelta(minutes=5)
REPORT_DESCRIPTOR = "SHUNTER_REPORT_DESCRIPTOR"
STORE = "store"
NETWORK_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # interfaces of the communication libraries


class Group:
    """Group of processes that run one module; if one process fails, the caller ends all of them.

    Args:
        module: Module that each process runs, with the folder as its argument.
        folder: Empty folder for the rendezvous file, output and errors; access by other users is removed.
        descriptor: Open file for reports, inherited by the first process.
    """

    def __init__(self, module: str, folder: Path, processes: int, *, threads: int, descriptor: int) -> None:
        self.module, self.folder = module, folder
        self.members: list[PythonProcess] = []
        folder.chmod(0o700)
        # The loopback interface overrides the environment, so that no other machine can join.
        loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
        environment = dict.fromkeys(NETWORK_INTERFACES, loopback)
        environment |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
        environment |= {REPORT_DESCRIPTOR: str(descriptor)}
        try:
            for rank in range(processes):
                self.members.append(
                    PythonProcess(
                        module,
                        str(folder),
                        threads=threads,
                        log=folder / f"log{rank}.txt",
                        environment=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                        descriptors=[] if rank else [descriptor],
                    )
                )
        except BaseException:
            self.end()
            raise

    @property
    def codes(self) -> list[int | None]:
        """Return the exit code of each process; None while it runs."""
        return [member.code for member in self.members]

    @property
    def has_failed(self) -> bool:
        """Return True if a process ended with an error."""
        return any(self.codes)

    @property
    def has_ended(self) -> bool:
        """Return True if all processes have ended."""
        return None not in self.codes

    def wait(self, seconds: float) -> None:
        """Wait until all processes of the group have ended, at most a given number of seconds."""
        deadline = time.monotonic() + seconds
        for member in self.members:
            member.wait(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """Terminate the running processes of the group, and kill them after `GRACE_SECONDS`."""
        for member in self.members:
            if member.code is None:
                member.terminate()
        self.wait(GRACE_SECONDS)
        for member in self.members:
            member.kill()

    def error(self) -> ShunterError | None:
        """Return the first `ShunterError` that a process has written; None if there is none."""
        for path in sorted(self.folder.glob("error*.json")):
            name, message = json.loads(path.read_text())
            return getattr(shunter.errors, name)(message)
        return None

    def culprit(self) -> int | None:
        """Return the rank of the process that failed first, not because of a lost connection; None if none failed."""
        codes = self.codes
        failed = [rank for rank, code in enumerate(codes) if code and code != -signal.SIGTERM]
        failed = failed or [rank for rank, code in enumerate(codes) if code]
        # A process that a signal ended comes first, one that lost its connection last.
        return min(
            failed, key=lambda rank: ((codes[rank] or 0) >= 0, "gloo" in self.members[rank].last_text()), default=None
        )


def run_group(module: str, folder: Path, processes: int, *, threads: int, on_report: Report) -> None:
    """Run `python -m module folder` in several processes until all have ended; a failure ends all processes.

    Args:
        module: Module that each process runs; see the module docstring.
        folder: Empty folder for rendezvous and output.
        processes: Number of processes.
        threads: Threads of each process.
        on_report: Called with the name and the value of each report of the first process.

    Raises:
        ShunterError: A process raised this error.
        HardwareError: A process failed in another way; the message quotes its last output line or error.
    """
    ours, theirs = Pipe(duplex=False)
    with ours:
        with theirs:  # closed once the processes have it, so that its end is theirs
            group = Group(module, folder, processes, threads=threads, descriptor=theirs.fileno())
        try:
            _follow(group, ours, on_report)
            if group.has_failed:
                rank = group.culprit()
                assert rank is not None, "one of the processes has failed"
                raise group.error() or HardwareError(
                    f"Process {rank} of {processes} that ran {module} ended with code {group.codes[rank]} "
                    f"({group.members[rank].last_text()}): free memory and processors, then measure again."
                )
        finally:
            group.end()


def run_member(main: Callable[[Path, Report], None]) -> NoReturn:
    """Run `main` as one process of a group and exit; never returns.

    `main` gets the folder of the group, and a function that reports a name and a value to the process that started the
    group. Only the reports of the first process are sent.
    """
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    end_process(folder, rank, lambda: main(folder, _reporter(rank)))


def end_process(folder: Path, rank: int, work: Callable[[], int | None]) -> NoReturn:
    """Run the work of one process of a group, then end the process with the exit code.

    Args:
        folder: Folder of the group; a `ShunterError` is written there.
        rank: Rank of this process.
        work: Returns the exit code; None is 0.
    """
    try:
        code = work() or 0
    except ShunterError as error:
        (folder / f"error{rank}.json").write_text(json.dumps([type(error).__name__, str(error)]))
        code = error.exit_code
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not `sys.exit`: threads of the communication library sometimes still run during Python's shutdown and abort the
    # process.
    os._exit(code)


def join_group(folder: Path, backend: str = "gloo", timeout: timedelta | None = TIMEOUT) -> None:
    """Join torch's default process group; all processes of the `Group` must join.

    The rendezvous is a file in the folder, so that no process listens on the network for it.

    Args:
        folder: Folder of the group.
        backend: Backend of the process group, `gloo` or a backend registered with torch.
        timeout: Longest time that a process waits for the other processes; None is torch's default.
    """
    from torch import distributed

    distributed.init_process_group(
        backend,
        init_method=f"file://{folder / STORE}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timeout,
    )


def interface_of(address: str) -> str:
    """Return the name of this machine's network interface with the given address.

    Raises:
        HardwareError: No interface has the address.
    """
    import psutil

    for name, found in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in found):
            return name
    raise HardwareError(
        f"No network interface of {socket.gethostname()} has the address {address} that Ray uses for this "
        "node: start the node with `ray start --node-ip-address` and an address of this machine."
    )


def _follow(group: Group, reports: Connection, on_report: Report) -> None:
    """Pass reports to `on_report` until all processes have ended or one has failed."""
    while True:
        report = None
        try:
            report = reports.recv() if reports.poll(POLL_SECONDS) else None
        except (EOFError, OSError):  # the first process has closed its end
            group.wait(POLL_SECONDS)
        if report is not None:
            on_report(*report)
        elif group.has_failed:
            group.wait(LAST_WORDS_SECONDS)
            return
        elif group.has_ended:
            return


def _reporter(rank: int) -> Report:
    if rank:
        return lambda kind, value: None
    reports = Connection(int(os.environ[REPORT_DESCRIPTOR]), readable=False)

    def report(kind: str, value: Any) -> None:
        with suppress(BrokenPipeError):  # the reader has closed its end
            reports.send((kind, value))

    return report
