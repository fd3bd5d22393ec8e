"""Python processes of this machine that measure something together: started, watched and ended as one.

The one who starts them calls `run_group`; the module that it names ends with

    if __name__ == "__main__":
        run_member(main)

where `main(folder, report)` runs in each process, and joins torch's default group with `join_group`.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import shunter.errors
from shunter.errors import HardwareError, ShunterError

Report = Callable[[str, Any], None]
POLL_SECONDS, GRACE_SECONDS = 0.1, 5.0
LAST_WORDS_SECONDS = 1.0  # who lost a connection may end before the one who caused it
TIMEOUT = timedelta(minutes=5)
REPORT_DESCRIPTOR = "SHUNTER_REPORT_DESCRIPTOR"
STORE = "store"


def run_group(module: str, folder: Path, processes: int, *, threads: int, on_report: Report) -> None:
    """Run `python -m module folder` in many processes until all have ended; one that fails ends the others.

    Args:
        module: what each of them runs; see the head of this file.
        folder: an empty one, in which they meet.
        processes: how many.
        threads: of each.
        on_report: called with the name and the value of what the first process reports.

    Raises:
        ShunterError: that one of them raised.
        HardwareError: one of them failed in another way; the message holds its last words.
    """
    reading, writing = os.pipe()
    started: list[subprocess.Popen[bytes]] = []
    try:
        try:
            for rank in range(processes):
                started.append(_start(module, folder, _environment(rank, processes, threads, writing)))
        finally:
            os.close(writing)  # once: its number may be another thread's file from here on
        _follow(started, reading, on_report)
        if any(process.returncode for process in started):
            raise _failure(module, folder, [process.returncode for process in started])
    finally:
        _end(started)
        os.close(reading)


def run_member(main: Callable[[Path, Report], None]) -> NoReturn:
    """Be one process of a group; never returns.

    Args:
        main: called with the folder and with what reports a name and a value, as JSON, to the one who started it all;
            only the first process is heard.
    """
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    code = 0
    try:
        main(folder, _reporter(rank))
    except ShunterError as error:
        (folder / f"error{rank}.json").write_text(json.dumps([type(error).__name__, str(error)]))
        code = error.exit_code
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of the communication library would now and then abort an orderly end


def join_group(folder: Path, backend: str = "gloo") -> None:
    """Join torch's default group; all processes that `run_group` has started must.

    Args:
        folder: in which they meet.
        backend: of the group, `gloo` or one that has been registered with torch.
    """
    from torch import distributed

    distributed.init_process_group(
        backend,
        init_method=f"file://{folder / STORE}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=TIMEOUT,
    )


def _environment(rank: int, processes: int, threads: int, report: int) -> dict[str, str]:
    root = str(Path(shunter.errors.__file__).parents[1])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": str(threads),
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        REPORT_DESCRIPTOR: str(report),
    }


def _start(module: str, folder: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    with (folder / f"log{environment['RANK']}.txt").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[int(environment[REPORT_DESCRIPTOR])],
            start_new_session=True,  # Ctrl-C is for the one who started them, who ends them
        )


def _follow(started: Sequence["subprocess.Popen[bytes]"], reading: int, on_report: Report) -> None:
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
        codes = [process.poll() for process in started]
        if any(codes):
            _wait(started, LAST_WORDS_SECONDS)
            return
        if None not in codes:
            return


def _end(started: Sequence["subprocess.Popen[bytes]"]) -> None:
    """End those that still run, by force after a while."""
    for process in started:
        if process.poll() is None:
            process.terminate()
    _wait(started, GRACE_SECONDS)
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait(started: Sequence["subprocess.Popen[bytes]"], seconds: float) -> None:
    """Wait until all have ended, no longer than this."""
    deadline = time.monotonic() + seconds
    for process in started:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))


def _failure(module: str, folder: Path, codes: Sequence[int | None]) -> ShunterError:
    for path in sorted(folder.glob("error*.json")):
        name, message = json.loads(path.read_text())
        return getattr(shunter.errors, name)(message)
    failed = {rank: _last_words(folder / f"log{rank}.txt") for rank, code in enumerate(codes) if code}
    # The one that failed by itself, not those who lost their connection to it.
    rank, last = min(failed.items(), key=lambda one: (codes[one[0]] != -signal.SIGKILL, "gloo" in one[1]))
    return HardwareError(
        f"Process {rank} of {len(codes)} that ran {module} ended with code {codes[rank]} ({last}): "
        "free memory and processors, then measure again."
    )


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "without a message"


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
