"""The kernel's count of processes ended for want of memory: of the own group where there is one, else the machine's."""

from pathlib import Path

import pytest

from shunter.hardware.devices import memory_limits
from shunter.hardware.devices.memory_limits import memory_kills as count


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GROUPS", "OWN_GROUP", "MACHINE"):
        monkeypatch.setattr(memory_limits, name, tmp_path / name.lower())
    return tmp_path


def test_the_own_group_counts_before_the_machine(files: Path) -> None:
    assert count() is None
    (files / "machine").write_text("nr_dirty 1\noom_kill 7\n")
    assert count() == 7
    (files / "own_group").write_text("4:memory:/old\n0::/jobs/mine\n")
    assert count() == 7
    group = files / "groups/jobs/mine"
    group.mkdir(parents=True)
    (group / "memory.events").write_text("low 0\nmax 12\noom 3\noom_kill 2\n")
    assert count() == 2
