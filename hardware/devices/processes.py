"""Python processes of this machine that work together: started, watched and ended as one.

The one who starts them to measure something calls `run_group`; the module that it names ends with

    if __name__ == "__main__":
        run_member(main)

where `main(folder, report)` runs in each process, and joins torch's default group with `join_group`.
"""

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import shunter.errors
from shunter.errors import HardwareError, ShunterError
from shunter.hardware.devices.python_process import PythonProcess

Report = Callable[[str, Any], None]
POLL_SECONDS, GRACE_SECONDS = 0.1, 5.0
LAST_WORDS_SECONDS = 1.0  # who lost a connection may end before the one who caused it
TIMEOUT = timedelta(minutes=5)
REPORT_DESCRIPTOR = "SHUNTER_REPORT_DESCRIPTOR"
STORE = "store"
NETWORK_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # which the communication libraries listen on


class Group:
    """Processes that run one module together; one that fails is a reason to end the others.

    Args:
        module: Module that each of them runs, with the folder as its argument.
        folder: An empty one, in which they meet and leave their output and their errors; closed to other users.
        processes: Number of processes.
        threads: Threads of each.
        descriptor: An open file that the first process inherits, to be heard by.
    """

    def __init__(self, module: str, folder: Path, processes: int, *, threads: int, descriptor: int) -> None:
        self.module, self.folder = module, folder
        self.members: list[PythonProcess] = []
        folder.chmod(0o700)
        try:
            for rank in range(processes):
                self.members.append(
                    PythonProcess(
                        module,
                        str(folder),
                        threads=threads,
                        log=folder / f"log{rank}.txt",
                        environment=_environment(rank, processes, descriptor),
                        descriptors=[] if rank else [descriptor],
                    )
                )
        except BaseException:
            self.end()
            raise

    @property
    def codes(self) -> list[int | None]:
        """Exit code of each; None while it runs."""
        return [member.code for member in self.members]

    @property
    def has_failed(self) -> bool:
        """Whether one of them ended with an error."""
        return any(self.codes)

    @property
    def has_ended(self) -> bool:
        """Whether all of them have ended."""
        return None not in self.codes

    def wait(self, seconds: float) -> None:
        """Wait until all have ended, no longer than this."""
        deadline = time.monotonic() + seconds
        for member in self.members:
            member.wait(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """End those that still run, by force after a while."""
        for member in self.members:
            if member.code is None:
                member.terminate()
        self.wait(GRACE_SECONDS)
        for member in self.members:
            member.kill()

    def error(self) -> ShunterError | None:
        """The error of ours that one of them has left."""
        for path in sorted(self.folder.glob("error*.json")):
            name, message = json.loads(path.read_text())
            return getattr(shunter.errors, name)(message)
        return None

    def culprit(self) -> int | None:
        """Rank of the one that failed by itself, rather than by losing its connection to it; None where none failed."""
        failed = [rank for rank, code in enumerate(self.codes) if code and code != -signal.SIGTERM]
        failed = failed or [rank for rank, code in enumerate(self.codes) if code]
        return min(failed, key=self._guilt, default=None)

    def _guilt(self, rank: int) -> tuple[bool, bool]:
        return (self.codes[rank] or 0) >= 0, "gloo" in self.members[rank].last_words()


def run_group(module: str, folder: Path, processes: int, *, threads: int, on_report: Report) -> None:
    """Run `python -m module folder` in many processes until all have ended; one that fails ends the others.

    Args:
        module: Module that each of them runs; see the head of this file.
        folder: Empty folder, in which they meet.
        processes: Number of processes.
        threads: Threads of each.
        on_report: Called with the name and the value of each report of the first process.

    Raises:
        ShunterError: One of them raised it.
        HardwareError: One of them failed in another way; the message holds its last words.
    """
    reading, writing = os.pipe()
    try:
        try:
            group = Group(module, folder, processes, threads=threads, descriptor=writing)
        finally:
            os.close(writing)  # once: its number may be another thread's file from here on
        try:
            _follow(group, reading, on_report)
            if group.has_failed:
                raise group.error() or _failure(group)
        finally:
            group.end()
    finally:
        os.close(reading)


def run_member(main: Callable[[Path, Report], None]) -> NoReturn:
    """Be one process of a group; never returns.

    Args:
        main: Called with the folder and with a function that reports a name and a value, as JSON, to the one who
            started it all; only the first process is heard.
    """
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    end_process(folder, rank, lambda: main(folder, _reporter(rank)))


def end_process(folder: Path, rank: int, work: Callable[[], int | None]) -> NoReturn:
    """Do the work of one process of a group, and end the process with what came of it.

    Args:
        folder: Where the group meets; an error of ours is left there.
        rank: Number of this process.
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
    # Not `sys.exit`: while Python takes itself down, threads of the communication library are now and then found
    # running, and abort a process that had come to its end.
    os._exit(code)


def join_group(folder: Path, backend: str = "gloo", timeout: timedelta | None = TIMEOUT) -> None:
    """Join torch's default group; all processes of the `Group` must.

    They meet by a file in the folder, so that nobody listens for them on the network.

    Args:
        folder: Folder in which they meet.
        backend: Backend of the group, `gloo` or one that has been registered with torch.
        timeout: Longest time that one waits for the others; None is torch's own.
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
    """Name of the network interface of this machine that has an address.

    Raises:
        HardwareError: None has it.
    """
    import psutil

    for name, found in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in found):
            return name
    raise HardwareError(
        f"No network interface of {socket.gethostname()} has the address {address} that Ray names: start the node with "
        "`ray start --node-ip-address` of one that it has."
    )


def _loopback() -> str:
    """Name of the network interface that no other machine reaches."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def _environment(rank: int, processes: int, report: int) -> dict[str, str]:
    return {
        **dict.fromkeys(NETWORK_INTERFACES, _loopback()),  # whatever the environment says: nobody outside takes part
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        REPORT_DESCRIPTOR: str(report),
    }


def _follow(group: Group, reading: int, on_report: Report) -> None:
    """Pass reports on until all have ended, or one has failed."""
    rest = b""
    while True:
        ready, _, _ = select.select([reading], [], [], POLL_SECONDS)
        if ready:
            received = os.read(reading, 1 << 16)
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                on_report(*json.loads(line))
            if received:
                continue
            group.wait(POLL_SECONDS)
        if group.has_failed:
            group.wait(LAST_WORDS_SECONDS)
            return
        if group.has_ended:
            return


def _failure(group: Group) -> ShunterError:
    rank = group.culprit()
    assert rank is not None, "one of them has failed"
    return HardwareError(
        f"Process {rank} of {len(group.members)} that ran {group.module} ended with code {group.codes[rank]} "
        f"({group.members[rank].last_words()}): free memory and processors, then measure again."
    )


def _reporter(rank: int) -> Report:
    if rank:
        return lambda kind, value: None
    descriptor = int(os.environ[REPORT_DESCRIPTOR])

    def report(kind: str, value: Any) -> None:
        with suppress(BrokenPipeError):  # nobody listens any more, and the end is near
            line = json.dumps([kind, value]).encode() + b"\n"
            while line:
                line = line[os.write(descriptor, line) :]

    return report
