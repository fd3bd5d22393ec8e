"""Banned wording is found where a reader meets it, and nowhere else."""

import pytest

from tests.house.sample_texts import DOCSTRINGS, MESSAGES, PARAGRAPHS, draw
from tests.house.sources import House, Source
from tests.house.words import findings

PLACE = "engine/loop/one.py"


@pytest.fixture(autouse=True)
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.house.words.pages", lambda: iter(()))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""Rows that lie in a file."""', [1]),
        ('"""Rows that `lie` in a file, and a "seat"."""', []),
        ('"""Return the rows that a batch looks up."""', []),
        ("ROWS = 3  # whoever comes first", [1]),
        ("raise ValueError(f'{name} lies outside of it')", [1]),
        ("log('lies', 'seat')", []),
        ("class Here: pass\n\n\ndef here(): pass", [1]),
        ('def f():\n    """What it does."""', [2]),
        ('def f() -> bool:\n    """Say whether."""\n\n\ndef g() -> bool:\n    """Say so."""', [6]),
        (f'"""Rows.\n\n{"long " * 31}sentence."""', [3]),
        (f'"""Rows.\n\nArgs:\n    told: {"short " * 20}\n    rows: {"short " * 20}\n"""', []),
    ],
)
def test_a_fault_is_found_at_its_line(text: str, lines: list[int]) -> None:
    found = findings(House((Source(PLACE, text),)))
    assert [int(one.split(":")[1]) for one in found] == lines


def test_a_sample_repeats_with_its_seed() -> None:
    text = "\n".join(f'def f{number}():\n    """Return the row {number}."""' for number in range(200))
    house = House((Source(PLACE, text),))
    first, again, other = draw(house, 1), draw(house, 1), draw(house, 2)
    assert first == again != other
    assert len(first["docstrings"]) == DOCSTRINGS
    assert len(first["messages"]) <= MESSAGES
    assert len(first["paragraphs"]) <= PARAGRAPHS
