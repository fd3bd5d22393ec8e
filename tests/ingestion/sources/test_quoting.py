"""CSV files whose quotes are not closed: one line is set aside, no other row is lost."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from shunter.ingestion.sources import quoting
from shunter.ingestion.sources.quoting import QuotedLines
from tests.ingestion.conftest import Ingest

HEADER = "click,user,note\n"
SCHEMA = {"label": "click", "categorical": ["user", "note"]}


def cleaned(text: str) -> tuple[list[str], list[int]]:
    stream = QuotedLines(Path("log.csv"), io.BytesIO(text.encode()), ",", 3)
    lines = stream.readall().decode().splitlines()
    return lines, [rejection.line for rejection in stream.take_rejected(None)]


def rows(count: int, *, note: str = "new", first: int = 0) -> list[str]:
    return [f"{row % 2},u{row % 5},{note}" for row in range(first, first + count)]


@pytest.fixture(params=[1 << 20, 64], ids=["in one block", "in small blocks"])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How much of a file is looked at together."""
    monkeypatch.setattr(quoting, "_BLOCK_BYTES", request.param)
    return request.param


@pytest.mark.parametrize("later", ["new", '"quoted"', '""', '"a, b"', '"say ""hi"""', '5" screen', '"8"b'])
@pytest.mark.parametrize("broken", ['1,u1,"open', '1,"u1,open', '"1,u1,open', '"1,u1,""open'])
def test_a_quote_that_is_never_closed_costs_its_own_line(block_bytes: int, broken: str, later: str) -> None:
    lines = [*rows(40), broken, *rows(60, note=later, first=40)]
    found, rejected = cleaned(HEADER + "\n".join(lines) + "\n")
    assert rejected == [42]
    assert found == [HEADER.strip(), *rows(40), "", *rows(60, note=later, first=40)]


@pytest.mark.parametrize("note", ['"two\nlines"', '"a\n\nb, c\n"', '"say ""hi\nthere"""', '"x\r\ny"'])
def test_a_text_with_lines_in_it_stays_one_row(block_bytes: int, note: str) -> None:
    text = HEADER + "\n".join([*rows(30), f"1,u1,{note}", *rows(30)])
    stream = QuotedLines(Path("log.csv"), io.BytesIO(text.encode()), ",", 3)
    assert stream.readall().decode() == text
    assert stream.take_rejected(None) == []
    spans = note.count("\n")
    assert stream.lines_of(np.array([31, 32, 33])).tolist() == [31, 32, 33 + spans]


def test_rows_between_two_stray_quotes_are_read(block_bytes: int) -> None:
    lines = [*rows(20), '1,u1,"open', *rows(50, first=20), '0,u2,close"', *rows(20)]
    found, rejected = cleaned(HEADER + "\n".join(lines) + "\n")
    assert rejected == [22]
    assert len([line for line in found if line]) == len(lines)


@pytest.mark.parametrize("note", ['"b"', '"it""s"', '5" screen', 'x"y"z', '"8"b', '""'])
def test_quotes_within_a_line_are_left_alone(note: str) -> None:
    text = HEADER + "\n".join(rows(20, note=note)) + "\n"
    assert cleaned(text) == (text.splitlines(), [])


def test_the_rows_after_an_unclosed_quote_are_learned(tmp_path: Path, ingest_file: Ingest) -> None:
    lines = rows(3_000)
    lines[499] += '"'
    lines[500] = '1,u1,"never closed'
    lines[2_000] = '1,u1,"two\nlines"'
    lines[2_500] = "1,u1"
    (tmp_path / "log.csv").write_text(HEADER + "\n".join(lines) + "\n")

    dataset, report = ingest_file(tmp_path / "log.csv", SCHEMA)

    assert (report.rows, report.quarantined_rows) == (2_998, 2)
    with (dataset.directory / "quarantine.csv").open() as stream:
        assert [(row["line"], row["reason"]) for row in csv.DictReader(stream)] == [
            ("502", "a quote opened here is not closed in its row"),
            ("2503", "2 columns, expected 3"),
        ]
