"""A bar with the time that is left, for those who watch."""

import io

import pytest

from shunter.masked_console import VARIABLE, Console
from shunter.tasks import progress_line as module
from shunter.tasks.progress_line import progress_line


def drawn(*, terminal: bool) -> str:
    text = io.StringIO()
    with progress_line("tune", Console(file=text, force_terminal=terminal, width=120)) as line:
        line.move(0.5, "1 of 2 trials")
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


def test_a_part_of_a_step_is_shown_in_the_line_of_the_step() -> None:
    text = io.StringIO()
    with progress_line("train", Console(file=text, force_terminal=True, width=120)), progress_line("member-0") as line:
        line.on_step(7, 20)
    assert "train member-0" in text.getvalue()
    assert "35%" in text.getvalue()
    assert module._active == []


def test_a_sentence_is_printed_above_the_line() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    with progress_line("card", console):
        module.print_above_line("Look at this.")
    before, _, _ = text.getvalue().partition("Look at this.")
    assert before.rpartition("card")[2].count("\x1b[2K") == 1
