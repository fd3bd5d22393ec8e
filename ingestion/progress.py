"""Progress of an ingestion, reported stage by stage."""

from collections.abc import Callable
from dataclasses import dataclass

from shunter.ingestion.batch import Source
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.synthetic import TEXT_BYTES, SyntheticSource

TIMES, READING, COUNTING, ENCODING = "finding times", "reading", "counting values", "encoding"
# Seconds of each stage, relative to one another, on generated Criteo rows and on a log of as many rows with a time.
_WEIGHTS = {TIMES: 4, READING: 20, COUNTING: 5, ENCODING: 9}


@dataclass(frozen=True)
class Progress:
    """Progress of an ingestion.

    Attributes:
        stage: Name of the current stage.
        share: Completed share of the whole ingestion, 0 to 1, weighted by the usual time of the stages.
        rows: Rows that the current stage has processed.
        bytes_read: Bytes read so far, compressed files by their size on disk.
        bytes: Total size of the files on disk in bytes.
    """

    stage: str
    share: float
    rows: int
    bytes_read: int
    bytes: int


OnProgress = Callable[[Progress], None]


class ProgressReporter:
    """Progress reporter that combines the stages into one share.

    Args:
        callback: Callback that receives each new `Progress`.
        source: The log.
    """

    def __init__(self, callback: OnProgress, source: Source) -> None:
        self._tell = callback
        self._bytes = log_bytes(source)
        self._bytes_read = self._rows = 0
        weights = {stage: weight for stage, weight in _WEIGHTS.items() if stage != TIMES or source.schema.time}
        self._share = {stage: weight / sum(weights.values()) for stage, weight in weights.items()}

    def read(self, stage: str, budget: Budget) -> None:
        """Report the bytes and rows that a pass over the log has read; `budget` counts them."""
        self._bytes_read, self._rows = min(budget.file_bytes, self._bytes), budget.rows_read
        self._say(stage, self._bytes_read / max(self._bytes, 1))

    def counted(self, columns: int, of_columns: int) -> None:
        """Report the number of columns whose values are counted."""
        self._say(COUNTING, columns / of_columns)

    def encoded(self, rows: int, of_rows: int) -> None:
        """Report the number of rows encoded and written."""
        self._rows = rows
        self._say(ENCODING, rows / of_rows)

    def _say(self, stage: str, share: float) -> None:
        before = 0.0
        for name, whole in self._share.items():
            if name == stage:
                self._tell(Progress(stage, before + share * whole, self._rows, self._bytes_read, self._bytes))
                return
            before += whole


def ignore(_: Progress) -> None:
    """Discard the progress, for callers without a progress display."""


def log_bytes(source: Source) -> int:
    """Return the size of a log's files in bytes, or the estimated text size of generated rows."""
    if isinstance(source, SyntheticSource):
        return source.rows * TEXT_BYTES
    return sum(path.stat().st_size for path in source.paths)
