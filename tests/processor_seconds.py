"""Processor seconds of test files: wall time says little where several workers share the cores."""

from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import psutil
import pytest

SHOWN = 30
COLLECTION = "collection"


class ProcessorSeconds:
    """Seconds of each file, in the processes of pytest and in those below them, also the servers of a session."""

    def __init__(self) -> None:
        self.by_file: defaultdict[str, float] = defaultdict(float)
        self.counted = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Add what the tests of a file have taken, after the last of them."""
        if not self.by_file:
            self.by_file[COLLECTION] = self.counted = _seconds()
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:
                now = _seconds()
                self.by_file[item.nodeid.partition("::")[0]] += now - self.counted
                self.counted = now

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that prints what this worker has taken."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[__name__] = dict(self.by_file)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker has told."""
        for file, seconds in getattr(node, "workeroutput", {}).get(__name__, {}).items():
            self.by_file[file] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the dearest files."""
        dearest = sorted(self.by_file.items(), key=lambda one: -one[1])[:SHOWN]
        terminalreporter.section(f"{sum(self.by_file.values()):,.0f} processor seconds")
        for file, seconds in dearest:
            terminalreporter.write_line(f"{seconds:8,.1f} s  {file}")


def _seconds() -> float:
    own = psutil.Process()
    total = sum(own.cpu_times()[:4])  # of itself and of the children that have ended
    for process in own.children(recursive=True):
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total
