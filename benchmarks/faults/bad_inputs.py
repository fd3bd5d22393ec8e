"""Data and requests that nobody can train on: the command says so in one sentence, and what to do."""

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.command import DATA, run

ROWS = 200
MOST_SECONDS = 300
SCHEMA = "label: click\ncategorical: [user, item]\n"
HEADER = "user,item,day,click\n"
LINES = "".join(f"u{row % 7},i{row % 5},2026-01-{1 + row % 28:02d},{row % 2}\n" for row in range(ROWS))

Maker = Callable[[Path], tuple[str, ...]]


@dataclass
class BadInput:
    """One input that cannot be used.

    Attributes:
        what: In words.
        command: The command.
        expected: What was expected.
        came: What came; `as expected`.
        said: What the command printed.
    """

    what: str
    command: str
    expected: str
    came: str = "as expected"
    said: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether it was told as it should be."""
        return self.came == "as expected"


def _csv(folder: Path, text: str, schema: str = SCHEMA, name: str = "log.csv") -> tuple[str, ...]:
    (folder / name).write_text(text)
    (folder / "schema.yaml").write_text(schema)
    return ("--data", str(folder / name), "--schema", str(folder / "schema.yaml"))


def _bytes(folder: Path, content: bytes, name: str) -> tuple[str, ...]:
    (folder / name).write_bytes(content)
    (folder / "schema.yaml").write_text(SCHEMA)
    return ("--data", str(folder / name), "--schema", str(folder / "schema.yaml"))


def _cut_short(folder: Path) -> tuple[str, ...]:
    content = gzip.compress(gzip.decompress(DATA.read_bytes())[:200_000])
    (folder / "log.tsv.gz").write_bytes(content[: len(content) // 2])
    return ("--data", str(folder / "log.tsv.gz"), "--format", "criteo")


def _pipe(folder: Path) -> tuple[str, ...]:
    os.mkfifo(folder / "log.tsv")
    return ("--data", str(folder / "log.tsv"), "--format", "criteo")


def _wide(folder: Path) -> tuple[str, ...]:
    names = [f"c{column}" for column in range(20_000)]
    text = ",".join([*names, "click"]) + "\n" + (",".join(["1"] * len(names)) + ",1\n") * 3
    return _csv(folder, text, "label: click\ncategorical: [none]\n")


# What it is: the exit code, words that the sentence must hold, and how it is made.
BAD_INPUTS: dict[str, tuple[int, str, Maker]] = {
    "a file that is not there": (3, "nowhere.csv", lambda folder: ("--data", str(folder / "nowhere.csv"))),
    "an empty folder": (3, "", lambda folder: ("--data", str(folder))),
    "an empty file": (3, "log.csv", lambda folder: _csv(folder, "")),
    "a header and no rows": (3, "row", lambda folder: _csv(folder, HEADER)),
    "a label that no column has": (
        3,
        "clicked",
        lambda folder: _csv(folder, HEADER + LINES, SCHEMA.replace("click", "clicked")),
    ),
    "a label of one class": (3, "", lambda folder: _csv(folder, HEADER + LINES.replace(",1\n", ",0\n"))),
    "a label of words": (3, "click", lambda folder: _csv(folder, HEADER + LINES.replace(",1\n", ",perhaps\n"))),
    "a date of month 99": (
        3,
        "",
        lambda folder: _csv(folder, HEADER + LINES.replace("2026-01", "2026-99"), SCHEMA + "time: day\n"),
    ),
    "a schema of 900 brackets": (3, "schema.yaml", lambda folder: _csv(folder, HEADER + LINES, "[" * 900)),
    "a schema with an unknown key": (3, "lable", lambda folder: _csv(folder, HEADER + LINES, "lable: click\n")),
    "20,000 columns, none of them named by the schema": (3, "none", _wide),
    "a log that is cut short": (3, "log.tsv.gz", _cut_short),
    "random bytes that claim to be Parquet": (
        3,
        "log.parquet",
        lambda folder: _bytes(folder, bytes(range(256)) * 40, "log.parquet"),
    ),
    "zero bytes that claim to be a CSV": (3, "log.csv", lambda folder: _bytes(folder, bytes(10_000), "log.csv")),
    "a named pipe": (3, "log.tsv", _pipe),
    "a model that there is not": (2, "dlmr", lambda folder: ("--data", str(DATA), "--model", "dlmr")),
    "a limit below zero": (2, "max-hours", lambda folder: ("--data", str(DATA), "--max-hours", "-1")),
    "a limit on cost without a price": (2, "price", lambda folder: ("--data", str(DATA), "--max-cost", "1")),
    "a limit that nothing keeps": (
        4,
        "",
        lambda folder: ("--data", str(DATA), "--format", "criteo", "--max-memory-gib", "0.001", "--trials", "1"),
    ),
}


def bad_input(what: str, home: Path, folder: Path) -> BadInput:
    """Give the command one of them."""
    code, words, make = BAD_INPUTS[what]
    folder.mkdir(parents=True)
    arguments = ("train", *make(folder))
    found, said = run(arguments, home)
    shown = " ".join(Path(part).name if part.startswith("/") else part for part in arguments)
    told = BadInput(what, f"shunter {shown}", f"exit code {code}, a sentence with {words!r} and no traceback")
    told.said = said.strip()[-600:].replace(str(folder), "FOLDER").replace(str(DATA.parent), "DATA")
    flat = " ".join(said.split())
    if found != code:
        told.came = f"exit code {found}"
    elif "Traceback" in said:
        told.came = "a traceback"
    elif words not in flat.replace(" ", "") and words not in flat:
        told.came = f"a sentence without {words!r}"
    return told
