"""Progress of an ingestion, shown on the terminal and, if it takes long, in Prefect."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shunter.ingestion.progress import OnProgress, Progress
from shunter.tasks.progress_line import progress_line
from shunter.tasks.run_log import log_sentence

KEY = "ingest"
TELL_SECONDS = 20.0
_MIB = 1 << 20


@contextmanager
def ingest_progress(now: Callable[[], float] = time.monotonic) -> Iterator[OnProgress]:
    """Show the progress of an ingestion: a bar on a terminal; in Prefect a log line and a bar, every 20 seconds.

    Args:
        now: Clock in seconds.
    """
    shown, began, told = _FlowBar(), now(), now()

    def on_progress(progress: Progress) -> None:
        nonlocal told
        words = text_of(progress)
        line.move(progress.share, words)
        if now() - told >= TELL_SECONDS:
            told = now()
            left = (told - began) * (1 - progress.share) / max(progress.share, 1e-3)
            sentence = f"Ingestion: {progress.share:.0%} done, {words}; about {duration(left)} left."
            log_sentence(sentence)
            shown.move(progress.share, sentence)

    with progress_line("ingest") as line:
        yield on_progress
    shown.end()


def text_of(progress: Progress) -> str:
    """Return the current stage and the amount of the log that was read, as text."""
    read = f"{progress.bytes_read / _MIB:,.0f} of {progress.bytes / _MIB:,.0f} MiB"
    return f"{progress.stage} ({progress.rows:,} rows, {read} read)"


def duration(seconds: float) -> str:
    """Return a duration as text, in seconds or, from two minutes on, in minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


class _FlowBar:
    """Progress bar of a flow run in Prefect, created when it first moves; errors of the server are ignored."""

    def __init__(self) -> None:
        self._artifact: Any = None
        self._lost = False

    def move(self, share: float, description: str) -> None:
        """Show a share, from 0 to 1, and a description."""
        from prefect.artifacts import create_progress_artifact, update_progress_artifact
        from prefect.runtime import flow_run

        if flow_run.id is None or self._lost:
            return
        try:
            if self._artifact is None:
                self._artifact = create_progress_artifact(100 * share, key=KEY, description=description)
            else:
                update_progress_artifact(self._artifact, progress=100 * share, description=description)
        except Exception:  # any error of Prefect's client: the ingestion continues without the bar
            self._lost = True

    def end(self) -> None:
        """Fill the bar if there is one."""
        if self._artifact is not None:
            self.move(1.0, "The log is ingested.")
