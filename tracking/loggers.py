"""Loggers beside MLflow, which get the same figures as the runs of one tree."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from shunter.requests.loggers import LOGGERS
from shunter.tracking.entries import Point

log = logging.getLogger(__name__)


class RunLogger(Protocol):
    """Logger of one tree of runs; called from several threads."""

    def begin(self, run_id: str, name: str, kind: str) -> None:
        """Begin a run.

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
        """End a run; its files are complete afterwards."""
        ...


class OpenLoggers:
    """Loggers of the trees of runs that this process writes at the moment.

    The trials of a search run in threads of their own, and each opens the store itself. A run therefore finds the
    loggers of its tree by its id. A logger that fails is left out from then on, since MLflow has all figures.
    """

    def __init__(self) -> None:
        self._by_run: dict[str, dict[str, RunLogger]] = {}

    @contextmanager
    def of_tree(self, run_id: str, name: str, loggers: Mapping[str, RunLogger]) -> Iterator[None]:
        """Write a run and its children to loggers while the block runs.

        Args:
            run_id: MLflow's id of the parent run.
            name: Name of the parent run.
            loggers: Loggers by name.
        """
        tree = dict(loggers)
        self._by_run[run_id] = tree
        self.call(run_id, "begin", name, "parent")
        try:
            yield
        finally:
            for one in [one for one, kept in self._by_run.items() if kept is tree]:
                self.end(one)

    def begin_child(self, run_id: str, name: str, tags: Mapping[str, str]) -> None:
        """Write a new run to the loggers of its parent, if there are any."""
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
                log.warning("%s gets no further figures (%s: %s).", name, type(error).__name__, error)

    def end(self, run_id: str) -> None:
        """End a run."""
        self.call(run_id, "end")
        self._by_run.pop(run_id, None)


OPEN_LOGGERS = OpenLoggers()


def opened(names: Sequence[str], root: Path, tree: str) -> dict[str, RunLogger]:
    """Return loggers for a tree of runs.

    Args:
        names: Names of the loggers.
        root: Folder in which each logger has a folder of its own.
        tree: Name of the tree in its files.
    """
    return {name: LOGGERS.load(name)(root / name, tree) for name in names}
