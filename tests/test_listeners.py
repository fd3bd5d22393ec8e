"""What looks for listening sockets is not disturbed by processes that end meanwhile, as a compiler's do."""

import subprocess
import sys

import psutil
import pytest

from tests.listeners import listening, started_with

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)", "mark of this test"]


def test_a_process_that_has_ended_listens_nowhere() -> None:
    with subprocess.Popen(SLEEP) as child:
        process = psutil.Process(child.pid)
        child.kill()
    assert listening(process) == set()
    assert list(started_with("mark", by=process)) == []


def test_one_that_ends_while_it_is_looked_at_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    command = psutil.Process.cmdline
    with subprocess.Popen(SLEEP) as first, subprocess.Popen(SLEEP) as second:

        def ends(process: psutil.Process) -> list[str]:
            if process.pid == first.pid:
                raise psutil.NoSuchProcess(process.pid)
            return command(process)

        monkeypatch.setattr(psutil.Process, "cmdline", ends)
        found = [process.pid for process in started_with("mark of this test", by=psutil.Process())]
        first.kill()
        second.kill()
    assert found == [second.pid]
