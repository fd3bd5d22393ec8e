"""A progress bar in the terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from shunter.engine.results import EpochReport
from shunter.masked_console import Console
from shunter.quiet import is_quiet

UPDATE_SECONDS = 0.1


class TrainingProgress:
    """Shows steps done, epochs and the last validation NE; drawing is skipped for most steps, which may be short."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._bar = progress.add_task(name, total=None, quality="")
        self._updated_at = 0.0

    def on_step(self, step: int, total_steps: int) -> None:
        """Move the bar, at most ten times a second."""
        now = time.monotonic()
        if now - self._updated_at >= UPDATE_SECONDS or step == total_steps:
            self._updated_at = now
            self._progress.update(self._bar, completed=step, total=total_steps)

    def on_epoch(self, report: EpochReport) -> None:
        """Show the quality."""
        self.show(f"epoch {report.epoch}: validation NE {report.validation.ne:.4f}, AUC {report.validation.auc:.4f}")

    def show(self, quality: str) -> None:
        """Show a text beside the bar."""
        self._progress.update(self._bar, quality=quality)

    def say(self, sentence: str) -> None:
        """Print above the bar, on a terminal or not."""
        if not is_quiet():
            self._progress.console.print(sentence, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def training_progress(
    name: str, console: Console | None = None, *, is_shown: bool = True
) -> Iterator[TrainingProgress]:
    """Show a bar on standard error while a training goes on; nothing where that is no terminal.

    Args:
        name: Name of the training.
        console: Console to draw on instead of standard error.
        is_shown: Whether to draw at all: one terminal has room for one such bar.
    """
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[quality]}"),
    )
    is_shown = is_shown and console.is_terminal and not is_quiet()
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as progress:
        yield TrainingProgress(progress, name)
