"""Escaping of foreign texts in Markdown, so that they cannot become links, pictures or tags."""

import re
from collections.abc import Sequence
from itertools import groupby

_MARKS = re.compile(r"[\\`*\[\]<>|&]|(?<![^\W_])_|_(?![^\W_])")
_LINE_MARKS = re.compile(r"^([#+=~-]+)(?=\s|$)|^(\d+)([.)])(?=\s)")

_BARS = re.compile(r"(?<!\\)\|")
MOST_COLUMNS = 6  # of a table that fits beside the notes of Prefect's page


def plain(text: object) -> str:
    """Return a text on one line, escaped so that Markdown shows it unchanged."""
    line = _MARKS.sub(lambda mark: f"\\{mark[0]}", " ".join(str(text).split()))
    return _LINE_MARKS.sub(lambda mark: f"\\{mark[1]}" if mark[1] else f"{mark[2]}\\{mark[3]}", line)


def narrow_tables(text: str) -> str:
    """Divide each table of more than `MOST_COLUMNS` columns into several, which repeat its first column."""
    narrowed: list[str] = []
    for is_table, group in groupby(text.splitlines(), lambda line: line.startswith("|")):
        lines = list(group)
        narrowed += _divided(lines) if is_table else lines
    return "\n".join(narrowed)


def _divided(lines: Sequence[str]) -> list[str]:
    rows = [[cell.strip() for cell in _BARS.split(line)[1:-1]] for line in lines]
    width, step = len(rows[0]), MOST_COLUMNS - 1
    if width <= MOST_COLUMNS:
        return list(lines)
    parts = [
        [f"| {' | '.join([row[0], *row[begin : begin + step]])} |" for row in rows] for begin in range(1, width, step)
    ]
    return [line for number, part in enumerate(parts) for line in ([""] if number else []) + part]
