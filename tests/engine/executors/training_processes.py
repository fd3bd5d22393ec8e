"""The processes in which trials train, apart from whatever else a test run has started: servers, other workers."""

import contextlib

import psutil


def training_processes() -> list[psutil.Process]:
    """Those that this process has started and that live, the oldest first."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "engine.executors.own_process_worker" in child.cmdline():
                found.append(child)
    return sorted(found, key=psutil.Process.create_time)
