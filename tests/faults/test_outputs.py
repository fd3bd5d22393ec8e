"""Outputs that are closed, full or read no more end a command with one sentence, a code of its own and no process."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shunter.errors import OutputError
from tests.faults.household import SHUNTER

READ_NO_MORE = 141  # as shells report it
COMMANDS = (("runs",), ("datasets", "--json"), ("train", "-h"), ("--version",), ("train", "--data", "synthetic:2000"))


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def read_no_more() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def run(arguments: tuple[str, ...], home: Path, output: int | None) -> "subprocess.CompletedProcess[str]":
    """Run a command with an output; None closes it."""
    shell = [] if output is not None else ["sh", "-c", '"$0" "$@" >&-']
    return subprocess.run(
        [*shell, str(SHUNTER), *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SHUNTER_HOME": str(home)},
        check=False,
    )


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("output", "code"), [(full, OutputError.exit_code), (None, OutputError.exit_code)])
def test_an_output_that_takes_nothing_is_told(
    arguments: tuple[str, ...], output: Callable[[], int] | None, code: int, tmp_path: Path
) -> None:
    done = run(arguments, tmp_path / "home", output() if output else None)
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "home" / "prefect").exists(), "nothing was begun"


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_whoever_reads_no_more_is_told_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run(arguments, tmp_path / "home", read_no_more())
    assert (done.returncode, done.stderr) == (READ_NO_MORE, "")


def test_a_command_that_prints_nothing_more_needs_no_output(tmp_path: Path) -> None:
    script = "import os, sys; os.close(1); os.close(2); from shunter.flows.cli import main; main()"
    program = [sys.executable, "-c", script, "train", "--nonsense"]
    done = subprocess.run(program, env={**os.environ, "SHUNTER_HOME": str(tmp_path)}, check=False)
    assert done.returncode == 2
