"""Progress of an ingestion, shown on the terminal and, if it takes long, in Prefect."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shunter.ingestion.progress import OnProgress, Progress
from shunter.tasks.progress_line import FlowBar, progress_line
from shunter.tasks.run_log import log_sentence

KEY = "ingest"
TELL_SECONDS = 20.0
_MIB = 1 << 20


@contextmanager
def ingest_progress(now: Callable[[], float] = time.monotonic) -> Iterator[OnProgress]:
    """Show the progress of an ingestion: a bar on a terminal; in Prefect a log line and a bar, every 20 seconds."""
    shown, began, told = FlowBar(KEY), now(), now()

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
    shown.end("The log is ingested.")


def text_of(progress: Progress) -> str:
    """Return the current stage and the amount of the log that was read, as text."""
    read = f"{progress.bytes_read / _MIB:,.0f} of {progress.bytes / _MIB:,.0f} MiB"
    return f"{progress.stage} ({progress.rows:,} rows, {read} read)"


def duration(seconds: float) -> str:
    """Return a duration as text, in seconds or, from two minutes on, in minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
