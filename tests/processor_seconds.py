"""Processor seconds of test files: wall time says little where several workers share the cores."""

import os
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

SHOWN = 30
COLLECTION = "collection and all else"


class ProcessorSeconds:
    """Seconds of each file, in the processes of pytest and in those that have ended below them."""

    def __init__(self) -> None:
        self.by_file: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Add what a test takes."""
        before = _seconds()
        try:
            return (yield)
        finally:
            self.by_file[item.nodeid.partition("::")[0]] += _seconds() - before

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that prints what this worker has taken."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            self.by_file[COLLECTION] = _seconds() - sum(self.by_file.values())
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
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
