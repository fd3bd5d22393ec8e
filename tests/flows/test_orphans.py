"""Processes that a killed command has left are ended by the next one, and no others."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from shunter.flows.command.temporary_server import OWNER, end_orphans, mark_children

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


@contextmanager
def child(mark: str | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has begun, with the mark of a command or with this one's."""
    environment = os.environ if mark is None else {**os.environ, OWNER: mark}
    with subprocess.Popen(SLEEP, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def mark(shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(OWNER, "")
    mark_children()
    return os.environ[OWNER]


def test_children_of_commands_that_are_gone_are_ended(mark: str) -> None:
    pid, created, home = mark.split(" ", maxsplit=2)
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    with ExitStack() as stack:
        of_nobody = stack.enter_context(child(f"{gone.pid} {created} {home}"))
        of_a_former_process = stack.enter_context(child(f"{pid} another-boot/1 {home}"))
        own = stack.enter_context(child())
        of_another_home = stack.enter_context(child(f"{gone.pid} {created} {home}-other"))
        unmarked = stack.enter_context(child(""))
        assert end_orphans() == 2
        assert of_nobody.poll() is not None
        assert of_a_former_process.poll() is not None
        assert [process.poll() for process in (own, of_another_home, unmarked)] == [None] * 3
        assert end_orphans() == 0
