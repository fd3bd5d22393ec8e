"""What only `shunter profile` measures, where a part of it cannot be."""

import shutil
from pathlib import Path

import pytest

from shunter.engine.profiling.profiles import complete, is_complete
from tests.hardware.profiles import make_profile

MEMORY = Path("/dev/shm")


def test_a_disk_that_cannot_be_measured_is_said_and_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not MEMORY.is_dir():
        pytest.skip("no file system in memory")
    folder = MEMORY / tmp_path.name
    monkeypatch.setenv("SHUNTER_HOME", str(folder))
    said: list[str] = []
    try:
        (profile,) = complete([make_profile(name="cuda:0")], said.append)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert profile.disk is None
    assert not is_complete(profile)
    assert any("keeps files in memory: set SHUNTER_HOME to a folder on a disk" in line for line in said)
