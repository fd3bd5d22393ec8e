"""A bar with the time that is left, for those who watch."""

import io

import pytest

from shunter.masked_console import Console
from shunter.quiet import VARIABLE
from shunter.tasks.share_progress import share_progress


def drawn(*, terminal: bool) -> str:
    text = io.StringIO()
    with share_progress("tune", Console(file=text, force_terminal=terminal, width=120)) as move:
        move(0.5, "1 of 2 trials")
    return text.getvalue()


def test_a_terminal_shows_share_and_words() -> None:
    text = drawn(terminal=True)
    assert "tune" in text
    assert "50%" in text
    assert "1 of 2 trials" in text


def test_a_pipe_and_a_quiet_command_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(terminal=False).strip() == ""
    monkeypatch.setenv(VARIABLE, "1")
    assert drawn(terminal=True).strip() == ""
