"""Additional loggers, which get the same figures as MLflow for all runs of a tree."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from shunter.requests.training import LOGGERS
from shunter.tracking.entries import Point

log = logging.getLogger(__name__)


class RunLogger(Protocol):
    """Logger for one tree of runs; its methods are called from several threads."""

    def begin(self, run_id: str, name: str, kind: str) -> None:
        """Begin a run in the logger.

        Args:
            run_id: MLflow's id of the run.
            name: Name of the run: `member-0`.
            kind: Kind of the run: `member`.
        """
        ...

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Write parameters of a run."""
        ...

    def log_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        """Write points of metrics: name, value, milliseconds since 1970, step."""
        ...

    def end(self, run_id: str) -> None:
        """End a run in the logger; its files are complete afterwards."""
        ...


class OpenLoggers:
    """Loggers of all trees of runs that this process currently writes.

    The trials of a search run in separate threads, and each trial opens the store separately. The loggers of a tree are
    therefore found by the id of a run. A logger that fails is not called again, since MLflow has all figures.
    """

    def __init__(self) -> None:
        self._by_run: dict[str, dict[str, RunLogger]] = {}

    @contextmanager
    def of_tree(self, run_id: str, name: str, loggers: Mapping[str, RunLogger]) -> Iterator[None]:
        """Write a run and its children to loggers for the duration of the `with` block."""
        tree = dict(loggers)
        self._by_run[run_id] = tree
        self.call(run_id, "begin", name, "parent")
        try:
            yield
        finally:
            for one in [one for one, kept in self._by_run.items() if kept is tree]:
                self.end(one)

    def begin_child(self, run_id: str, name: str, tags: Mapping[str, str]) -> None:
        """Write a new run to the loggers of its parent run."""
        tree = self._by_run.get(tags.get("mlflow.parentRunId", ""))
        if tree is not None:
            self._by_run[run_id] = tree
            self.call(run_id, "begin", name, tags.get("run.kind", ""))

    def call(self, run_id: str, method: str, *arguments: object) -> None:
        """Call a method of each logger of a run."""
        tree = self._by_run.get(run_id)
        for name, one in [*tree.items()] if tree else ():
            try:
                getattr(one, method)(run_id, *arguments)
            except Exception as error:
                assert tree is not None
                tree.pop(name, None)
                log.warning(
                    "The logger %s failed and gets no further figures (%s: %s).", name, type(error).__name__, error
                )

    def end(self, run_id: str) -> None:
        """End a run in all loggers."""
        self.call(run_id, "end")
        self._by_run.pop(run_id, None)


OPEN_LOGGERS = OpenLoggers()


def opened(names: Sequence[str], root: Path, tree: str) -> dict[str, RunLogger]:
    """Return loggers for a tree of runs; each has a folder of its name in `root`, and files of the name `tree`."""
    return {name: LOGGERS.load(name)(root / name, tree) for name in names}
