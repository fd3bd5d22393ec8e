"""Records the results that the tests beside compare with: `python -m tests.golden.record`, with names to record a part.

Whole runs are recorded by their tests: `GOLDEN_RECORD=1 pytest FILE` records instead of comparing. Record on purpose
only, where a result is to change.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.golden import (
    commands,
    decisions,
    flow_runs,
    ingestions,
    past_runs,
    registered,
    searches,
    trainings,
    unfinished,
)
from tests.golden.recorded import plain, write, write_cases


def record_ingestions(folder: Path) -> None:
    """The logs, and what they become."""
    ingestions.write_logs()
    _write(ingestions.FILE, ingestions.CASES, lambda case: ingestions.contents(case, folder / case))


def record_trainings(folder: Path) -> None:
    """Trainings of every kind."""
    cases = {**trainings.CASES, **trainings.SLOW_CASES, unfinished.CHECKPOINT_CASE: unfinished.resumed_training}
    _write(trainings.FILE, cases, lambda case: cases[case](folder / case))


def record_searches(folder: Path) -> None:
    """Searches of every kind."""
    _write(searches.FILE, searches.CASES, lambda case: searches.searched(case, folder))


def record_decisions(folder: Path) -> None:
    """Choices of a placement."""
    dataset = decisions.data(folder)
    _write(decisions.FILE, decisions.CASES, lambda case: decisions.decided(case, folder, dataset))
    write(decisions.KEPT_DECISION, decisions.whole_decision(folder, dataset))


def record_commands(folder: Path) -> None:
    """Options of the commands."""
    write(commands.FILE, commands.options())


def record_registered(folder: Path) -> None:
    """Registered models."""
    registered.write_registered(folder)


def record_unfinished(folder: Path) -> None:
    """Interrupted trainings and an interrupted search."""
    unfinished.write_unfinished(folder)


def record_past(folder: Path) -> None:
    """The runs of a whole training, as past runs to be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(folder / "prefect"))
        patch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
        from prefect.testing.utilities import prefect_test_harness

        with prefect_test_harness(server_startup_timeout=120):
            client, run_id = flow_runs.run_flow(folder / "home")
    past_runs.write_past(client, run_id, folder / "past")


RECORDERS: dict[str, Callable[[Path], None]] = {
    "commands": record_commands,
    "ingestions": record_ingestions,
    "trainings": record_trainings,
    "searches": record_searches,
    "decisions": record_decisions,
    "registered": record_registered,
    "unfinished": record_unfinished,
    "past": record_past,
}


def _write(name: str, cases: Iterable[str], compute: Callable[[str], Any]) -> None:
    write_cases(name, {case: plain(compute(case)) for case in cases})


def main(names: list[str]) -> None:
    """Record the parts that are named, or all."""
    for name in names or RECORDERS:
        with tempfile.TemporaryDirectory() as folder:
            RECORDERS[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
