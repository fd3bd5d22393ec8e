"""The processes in which trials train, apart from whatever else a test run has started: servers, other workers."""

import contextlib

import psutil


def training_processes() -> list[psutil.Process]:
    """Those that this process has started, or had forked by `tests.warm_processes`, and that live, the oldest first."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            command = child.cmdline()
            if "shunter.engine.executors.separate_process_worker" in command:
                found.append(child)
            elif "tests.warm_processes" in command:
                for keeper in child.children():
                    found += _children(keeper)
    return sorted(found, key=psutil.Process.create_time)


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children()
    return []
