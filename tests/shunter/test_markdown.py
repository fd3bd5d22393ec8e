"""Texts of others within Markdown: what a reader sees is the text, and nothing else happens."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from shunter.markdown import narrow_tables, plain

ATTACKS = [
    "[free](javascript:alert(1))",
    "![x](http://evil/pixel.png)",
    "<img src=x onerror=alert(1)>",
    "a\n\n# heading\n- item",
    "| cell | break |",
    "# heading",
    "1. first",
    "- item",
    "`code` *bold* __also__",
    "a &lt;b&gt;",
]


def rendered(text: str) -> str:
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


@pytest.mark.parametrize("text", ATTACKS)
def test_a_text_stays_a_text(text: str) -> None:
    shown = rendered(f"Column {plain(text)} is missing.")
    assert re.findall(r"<(\w+)", shown) == ["p"]
    assert re.findall(r"<(\w+)", rendered(plain(text))) == ["p"]


@given(st.text(min_size=1))
def test_no_text_makes_a_link_a_picture_or_a_tag(text: str) -> None:
    assert set(re.findall(r"<(\w+)", rendered(f"Column {plain(text)} is missing."))) <= {"p"}


def test_ordinary_words_stay_readable() -> None:
    assert plain("time_of_day is 5 % (of 3,000 rows): see day-1.csv #2.") == (
        "time_of_day is 5 % (of 3,000 rows): see day-1.csv #2."
    )


def test_wide_tables_are_divided_and_repeat_their_first_column() -> None:
    names = [f"c{number}" for number in range(12)]
    cells = [f"v\\\\|{number}" for number in range(12)]
    lines = [f"| {' | '.join(row)} |" for row in (names, ["---"] * 12, cells)]
    divided = narrow_tables("\n".join(["Before.", "", *lines, "", "| a | b |", "|---|---|", "| 1 | 2 |", "After."]))
    parts = [part.splitlines() for part in divided.split("\n\n")]
    assert parts[0] == ["Before."]
    assert [part[0].split()[1:-1:2] for part in parts[1:4]] == [
        ["c0", *names[1:6]],
        ["c0", *names[6:11]],
        ["c0", "c11"],
    ]
    assert all(part[2].startswith(f"| {cells[0]} |") for part in parts[1:4])
    assert parts[4] == ["| a | b |", "|---|---|", "| 1 | 2 |", "After."]
