"""How far an ingestion has come, for whoever waits for it."""

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
    """What is done of an ingestion.

    Attributes:
        stage: What goes on.
        share: Share of the whole ingestion that is done, by the usual time of its stages; from 0 to 1.
        rows: Rows that this stage has done.
        bytes_read: Bytes of the files that have been read, as they lie on the disk.
        bytes: All of them.
    """

    stage: str
    share: float
    rows: int
    bytes_read: int
    bytes: int


OnProgress = Callable[[Progress], None]


class Watch:
    """Puts the work of the stages together.

    Args:
        tell: Gets what is done whenever it is more.
        source: The log.
    """

    def __init__(self, tell: OnProgress, source: Source) -> None:
        self._tell = tell
        self._bytes = log_bytes(source)
        self._bytes_read = self._rows = 0
        weights = {stage: weight for stage, weight in _WEIGHTS.items() if stage != TIMES or source.schema.time}
        self._share = {stage: weight / sum(weights.values()) for stage, weight in weights.items()}

    def read(self, stage: str, budget: Budget) -> None:
        """Tell what a pass over the log has read, as its budget counts it."""
        self._bytes_read, self._rows = min(budget.file_bytes, self._bytes), budget.rows_read
        self._say(stage, self._bytes_read / max(self._bytes, 1))

    def counted(self, columns: int, of_columns: int) -> None:
        """Tell of how many columns the values have been counted."""
        self._say(COUNTING, columns / of_columns)

    def encoded(self, rows: int, of_rows: int) -> None:
        """Tell how many rows have been encoded and written."""
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
    """For callers to whom nothing needs to be told."""


def log_bytes(source: Source) -> int:
    """Bytes of the files of a log, or about as many as its generated rows would take."""
    if isinstance(source, SyntheticSource):
        return source.rows * TEXT_BYTES
    return sum(path.stat().st_size for path in source.paths)
