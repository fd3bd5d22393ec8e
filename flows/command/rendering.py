"""Formatting of tables and numbers for the output of commands."""

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from shunter.hardware.units import JOULES_PER_KWH
from shunter.masked_console import Console
from shunter.secrets import without_secrets

MOST_WIDTH = 160  # largest width of a table as text, in characters

_NUMBER = re.compile(r"[~*+-]? ?[\d.,]+(e-?\d+)?( ?(%|x|\w{1,3}))?|-|")


@dataclass(frozen=True)
class TextTable:
    """Table of texts.

    Attributes:
        columns: Titles of the columns; empty for a list of labels and values.
        rows: Cells of each row.
        title: Line above the table.
        caption: Line below the table.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""


def print_table(console: Console, table: TextTable) -> None:
    """Print a table, with columns of numbers aligned to the right; print nothing for a table without rows."""
    if not table.rows:
        return
    drawn = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_header=bool(table.columns),
    )
    for index, cells in enumerate(zip(*table.rows, strict=True)):
        is_number = bool(table.columns) and all(map(_NUMBER.fullmatch, cells))
        title = escape(table.columns[index]) if table.columns else ""
        style = "bold" if not table.columns and index == 0 else None
        drawn.add_column(title, justify="right" if is_number else "left", overflow="fold", style=style)
    for row in table.rows:
        drawn.add_row(*map(escape, row))
    if table.title:
        console.print(f"\n{escape(table.title)}", style="bold", highlight=False)
    console.print(drawn, highlight=False)
    if table.caption:
        console.print(table.caption, markup=False, highlight=False)


def text_table(table: TextTable) -> str:
    """Return a table as plain text, as wide as its cells."""
    text = io.StringIO()
    print_table(Console(file=text, width=MOST_WIDTH, emoji=False, force_jupyter=False), table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def html_table(table: TextTable) -> str:
    """Return a table as HTML, with secrets removed from its texts; empty if the table has no rows."""

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}>{html.escape(without_secrets(cell))}</{tag}>" for cell in row)

    head = f"<thead><tr>{cells(table.columns, 'th')}</tr></thead>" if table.columns else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    title = f"<caption>{html.escape(without_secrets(table.title))}</caption>" if table.title else ""
    caption = f"<p>{html.escape(without_secrets(table.caption))}</p>" if table.caption else ""
    return f"<table>{title}{head}<tbody>{body}</tbody></table>{caption}" if table.rows else ""


def number(value: float | None, unit: str = "") -> str:
    """Return a number with three significant digits and a unit; an empty text for None."""
    if value is None:
        return ""
    digits = f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()


def duration(seconds: float | None) -> str:
    """Return a time as text in seconds, minutes or hours."""
    if seconds is None or seconds < 120:
        return number(seconds, "s")
    return number(seconds / 60, "min") if seconds < 7200 else number(seconds / 3600, "h")


def energy(joules: float | None, method: str | None = "measured") -> str:
    """Return an energy as text in J or kWh; an energy that is not measured is marked with ~."""
    if joules is None:
        return ""
    text = number(joules, "J") if joules < 0.01 * JOULES_PER_KWH else number(joules / JOULES_PER_KWH, "kWh")
    return text if method == "measured" else f"~{text}"


def quality(value: float | None) -> str:
    """Return a metric between 0 and 1 as text with three decimals."""
    return "" if value is None else f"{value:.3f}"
