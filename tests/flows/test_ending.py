"""A command ends when its exit handlers have run, without the interpreter taking apart what it has imported."""

import subprocess
import sys

import pytest

from shunter.settings import PROJECT_ROOT

SCRIPT = """
import atexit, sys
import shunter.flows.cli, shunter.flows.command.cli
def app(prog_name):
    atexit.register(print, "handled", end="")
    {body}
shunter.flows.command.cli.app = app
class Kept:
    def __del__(self): print("taken apart")
kept = Kept()
shunter.flows.cli.main()
"""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(7)", 7),
        ("sys.exit('a sentence')", 1),
        ("raise KeyboardInterrupt", 130),
        ("raise OSError('not foreseen')", 1),
    ],
)
def test_handlers_run_output_is_written_and_the_status_kept(body: str, status: int) -> None:
    program = [sys.executable, "-c", SCRIPT.format(body=body)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=PROJECT_ROOT)
    assert (done.returncode, done.stdout) == (status, "handled")
