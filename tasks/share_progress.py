"""A bar on the terminal for a step of which the done share is known, with the time that is left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from shunter.masked_console import Console
from shunter.quiet import is_quiet


@contextmanager
def share_progress(name: str, console: Console | None = None) -> Iterator[Callable[[float, str], None]]:
    """Show a bar on standard error; nothing where that is no terminal, or where the command is to be quiet.

    Args:
        name: What goes on.
        console: Console to draw on instead of standard error.

    Yields:
        Function to tell the share, from 0 to 1, and words beside it.
    """
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    hidden = not console.is_terminal or is_quiet()
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task(name, total=1.0, words="")
        yield lambda share, words: progress.update(bar, completed=share, words=words)
