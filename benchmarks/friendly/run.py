"""One wrong use, tried in a folder of its own, and what to think of the answer."""

import os
import re
import shlex
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.friendly.cases import FILES, Case

FOREIGN = re.compile(
    r"Input should|Extra inputs|Value error|Field required|String should|unable to parse|pydantic|type=|Errno|Usage:"
    r"|Unexpected error|Invalid value|is not a valid|\(sqlite3\.|sqlalchemy|Exception|(?-i:\bNone\b)|0x[0-9a-f]{6}",
    re.IGNORECASE,
)
LONGEST_SENTENCE = 700


def furnish(case: Case, folder: Path) -> None:
    """Put the files of a case into its folder."""
    for name, content in {**FILES, **case.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def environment_of(case: Case, folder: Path) -> Mapping[str, str]:
    """The variables of a case."""
    home = {"SHUNTER_HOME": str(folder / "home")}
    return home | {name: value.format(folder=folder) for name, value in case.environment.items()}


def arguments_of(case: Case) -> list[str]:
    """What is typed after `shunter`, as a shell splits it."""
    return shlex.split(case.command)


def verdict(case: Case, code: int | None, errors: str) -> str:
    """`clear`, or what is wrong with the answer.

    Args:
        case: What was typed.
        code: Exit code; None where there was no answer in time.
        errors: What came on standard error.
    """
    if code is None:
        return "hang"
    if "Traceback" in errors:
        return "traceback"
    if code == 0:
        return "silent"
    sentences = [line for line in errors.splitlines() if line.startswith("Error: ")]
    if len(sentences) != 1:
        return "no sentence"
    [sentence] = sentences
    if FOREIGN.search(sentence) or len(sentence) > LONGEST_SENTENCE or sentence[-1] not in ".?`":
        return "foreign"
    return "clear" if re.search(case.told, sentence) else "misleading"


@contextmanager
def within(folder: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Work in a folder with some variables, and in the former ones again after it."""
    before, former = dict(os.environ), Path.cwd()
    os.environ.update(variables)
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        os.chdir(former)
        os.environ.clear()
        os.environ.update(before)
