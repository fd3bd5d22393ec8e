"""Progress of a command: a single moving line on a terminal, and a bar in Prefect.

The line shows step, share, trial, best quality, time passed and time left.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from shunter.masked_console import Console, is_quiet

if TYPE_CHECKING:
    from shunter.engine.results import EpochReport

UPDATE_SECONDS = 0.25
_active: list["ProgressLine"] = []  # lines on the terminal; the last one is moved


class ProgressLine:
    """Progress line of a step; updates in quick succession are not drawn.

    Attributes:
        share: Completed share, from 0 to 1.
        words: Text beside the bar.
    """

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress, self._name = progress, name
        self.share, self.words = 0.0, ""
        self._row = progress.add_task(name, total=1.0, words="")
        self._moved_at = 0.0

    @property
    def console(self) -> Console:
        """Console on which the line is drawn."""
        console = self._progress.console
        assert isinstance(console, Console), "the line is drawn on a console that hides secrets"
        return console

    @contextmanager
    def within(self, name: str) -> Iterator["ProgressLine"]:
        """Show progress of a part of the step in the same line while the block runs."""
        whole = self._name
        self._name = name if name == whole else f"{whole} {name}"
        self._progress.reset(self._row, description=self._name, words="")
        try:
            yield self
        finally:
            self._name = whole

    def move(self, share: float, words: str | None = None) -> None:
        """Set the completed share of the progress bar, from 0 to 1, and the text beside it."""
        now, self.share = time.monotonic(), share
        if words is None and share < 1.0 and now - self._moved_at < UPDATE_SECONDS:
            return
        self._moved_at = now
        self._progress.update(self._row, description=self._name, completed=share)
        if words is not None:
            self.show(words)

    def on_step(self, step: int, total_steps: int) -> None:
        """Show the number of completed training steps."""
        self.move(step / total_steps)

    def on_epoch(self, report: "EpochReport") -> None:
        """Show the quality after an epoch beside the progress bar."""
        quality = report.validation
        first, second = ("NE", "ne"), ("AUC", "auc")
        if quality.rmse is not None:
            first, second = ("relative loss", "relative_loss"), ("RMSE", "rmse")
        shown = ", ".join(f"{label} {quality.figures[name]:.4f}" for label, name in (first, second))
        self.show(f"epoch {report.epoch}: validation {shown}")

    def show(self, words: str) -> None:
        """Show a text beside the progress bar."""
        self.words = words
        self._progress.update(self._row, words=words)

    def say(self, sentence: str) -> None:
        """Print a sentence above the progress bar, even if there is no terminal."""
        if not is_quiet():
            self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def print_above_line(sentence: str) -> None:
    """Print a sentence on standard error; if a line is drawn, above the line."""
    console = _active[-1].console if _active else Console(stderr=True)
    console.print(sentence, style="dim", markup=False, highlight=False, soft_wrap=True)


def is_drawn(console: Console) -> bool:
    """Return True if a moving line is drawn on a console: on a terminal, or in a notebook that shows widgets."""
    is_shown = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
    return is_shown and not is_quiet()


@contextmanager
def progress_line(name: str, console: Console | None = None, *, is_shown: bool = True) -> Iterator[ProgressLine]:
    """Show a progress line on standard error while the block runs; nothing without a terminal or with `--quiet`.

    Within the block of another line, that line is used, because a terminal has a single progress line.

    Args:
        name: Name of the step or of its part.
        console: Console to draw on instead of standard error.
        is_shown: Whether to draw the line; only one of several parallel training runs draws it.
    """
    if _active and is_shown and console is None:
        with _active[-1].within(name) as line:
            yield line
        return
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    hidden = not (is_shown and is_drawn(console))
    with Progress(
        *columns, console=console, transient=True, disable=hidden, redirect_stdout=False, refresh_per_second=4
    ) as progress:
        line = ProgressLine(progress, name)
        if not hidden:
            _active.append(line)
        try:
            yield line
        finally:
            if not hidden:
                _active.remove(line)


class FlowBar:
    """Progress bar of a flow run in Prefect, created when it first moves; errors of the server are ignored.

    Args:
        key: Key of the artifact: small letters, digits and dashes.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._artifact: Any = None
        self._lost = False

    def move(self, share: float, description: str) -> None:
        """Show a share, from 0 to 1, and a description; do nothing outside of a flow."""
        from prefect.artifacts import create_progress_artifact, update_progress_artifact
        from prefect.runtime import flow_run

        if self._lost or (self._artifact is None and flow_run.id is None):  # threads of the flow do not know its id
            return
        try:
            if self._artifact is None:
                self._artifact = create_progress_artifact(100 * share, key=self._key, description=description)
            else:
                update_progress_artifact(self._artifact, progress=100 * share, description=description)
        except Exception:  # any error of Prefect's client: the step continues without the bar
            self._lost = True

    def end(self, description: str) -> None:
        """Set the progress bar of the flow to 100 %, if it was created."""
        if self._artifact is not None:
            self.move(1.0, description)
