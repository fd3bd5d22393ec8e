"""What a rival is asked to do, and the file in which it says what it has reached when."""

import json
import sys
import time
from pathlib import Path
from typing import Any


class Job:
    """One training of a rival.

    Attributes:
        model: Which of its models.
        files: Paths of the raw parts `train`, `validation` and `test`.
        folder: A folder of its own for whatever it writes.
        max_epochs: Longest training.
        seconds: Wall clock after which no other epoch begins, counted from the start of the process.
        threads: Threads that it may use.
        seed: Of weights and order.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.model: str = given["model"]
        self.files: dict[str, str] = given["files"]
        self.folder = Path(given["folder"])
        self.max_epochs: int = given["max_epochs"]
        self.seconds: float = given["seconds"]
        self.threads: int = given["threads"]
        self.seed: int = given["seed"]
        self._began: float = given["began"]
        self._report = Path(given["report"])
        self._points: list[dict[str, float]] = []

    @property
    def is_over(self) -> bool:
        """Whether no other epoch may begin."""
        return self.elapsed() >= self.seconds or len(self._points) >= self.max_epochs

    def elapsed(self) -> float:
        """Seconds since the process was started, imports included: the clock is the machine's, not the process'."""
        return time.monotonic() - self._began

    def reached(self, quality: float) -> None:
        """Write down the quality on the validation part after an epoch."""
        self._points.append({"seconds": self.elapsed(), "quality": float(quality)})
        print(f"epoch {len(self._points)}: {quality:.4f} after {self.elapsed():.1f} s", flush=True)

    def finish(self, test: float, settings: dict[str, Any]) -> None:
        """Write down all there is.

        Args:
            test: Quality of the kept weights on the test part.
            settings: What it was trained with.
        """
        is_cut = self.elapsed() >= self.seconds
        result = {"points": self._points, "test": float(test), "settings": settings, "ended_by_the_limit": is_cut}
        self._report.write_text(json.dumps(result))


def read_job() -> Job:
    """The job that the command line names."""
    return Job(json.loads(Path(sys.argv[1]).read_text()))
