"""Hundreds of wrong uses are answered in one sentence each; the list is the one that the benchmark counts with."""

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.friendly.cases import Case, cases
from benchmarks.friendly.run import arguments_of, environment_of, furnish, verdict, within
from shunter.flows.command import cli

CASES = cases()


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.starts_servers], ids=lambda case: case.command[:70]
)
def test_a_wrong_use_is_told_in_one_sentence(case: Case, tmp_path: Path) -> None:
    furnish(case, tmp_path)
    with within(tmp_path, environment_of(case, tmp_path)):
        done = CliRunner().invoke(cli.app, arguments_of(case), prog_name="shunter")
    assert verdict(case, done.exit_code, done.stderr) == "clear", done.stderr


def test_there_are_many_and_none_is_twice() -> None:
    count = Counter((case.command, str(case.files), str(case.environment)) for case in CASES)
    assert len(count) == len(CASES) >= 300


@pytest.mark.parametrize(
    ("code", "errors", "found"),
    [
        (None, "", "hang"),
        (1, "Traceback (most recent call last):", "traceback"),
        (0, "", "silent"),
        (2, "", "no sentence"),
        (2, "Error: One.\nError: Two.", "no sentence"),
        (2, "Error: Input should be a number.", "foreign"),
        (2, "Error: Something is wrong.", "misleading"),
        (2, "Error: --trials is 0: give more.", "clear"),
    ],
)
def test_the_verdict(code: int | None, errors: str, found: str) -> None:
    assert verdict(Case("train --trials 0", "--trials is 0"), code, errors) == found
