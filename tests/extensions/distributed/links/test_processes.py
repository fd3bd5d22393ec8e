"""Processes that start, meet and end together, whatever happens to one of them.

The first test starts them in truth; for the others they are forked, with torch loaded already.
"""

from pathlib import Path
from typing import Any

import pytest

from shunter.errors import HardwareError, RequestError
from shunter.extensions.distributed.links.processes import run_group

MODULE = "tests.extensions.distributed.links.group_member"


def run(tmp_path: Path, behaviour: str, processes: int = 2) -> list[tuple[str, Any]]:
    (tmp_path / "behaviour").write_text(behaviour)
    reports: list[tuple[str, Any]] = []
    run_group(MODULE, tmp_path, processes, threads=1, on_report=lambda kind, value: reports.append((kind, value)))
    return reports


def test_they_form_one_group_and_the_first_is_heard(tmp_path: Path) -> None:
    assert run(tmp_path, "sum") == [("sum", 1.0), ("long", "x" * 200_000)]


@pytest.mark.usefixtures("warm_processes")
def test_an_error_of_ours_comes_through(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="process 1 does not like it"):
        run(tmp_path, "refuse")


@pytest.mark.usefixtures("warm_processes")
def test_a_crash_ends_the_others_and_says_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match=r"Process 1 of 2 .* ended with code 1 \(ValueError: out of luck\)"):
        run(tmp_path, "crash")


@pytest.mark.usefixtures("warm_processes")
def test_a_killed_process_ends_the_others(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="ended with code -9"):
        run(tmp_path, "kill")


@pytest.mark.usefixtures("warm_processes")
def test_files_that_others_open_meanwhile_stay_open(tmp_path: Path) -> None:
    (tmp_path / "behaviour").write_text("sum")
    opened = []
    run_group(
        MODULE, tmp_path, 2, threads=1, on_report=lambda kind, value: opened.append((tmp_path / "behaviour").open())
    )
    assert len(opened) == 2
    for file in opened:
        with file:
            assert file.read() == "sum"


@pytest.mark.usefixtures("warm_processes")
def test_the_folder_in_which_they_meet_is_closed_to_other_users(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    run(tmp_path, "sum")
    assert tmp_path.stat().st_mode & 0o777 == 0o700
