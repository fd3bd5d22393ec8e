"""What is tidied up every night: large logs begin anew while they are written to, and old leftovers go."""

import logging
import os
import time
from pathlib import Path

import pytest

from shunter.errors import TrackingError
from shunter.settings import Settings
from shunter.tasks import upkeep
from shunter.tasks.upkeep import rotate, tidy


def test_a_log_that_is_written_to_begins_anew_and_one_former_is_kept(tmp_path: Path) -> None:
    path, kept = tmp_path / "prefect.log", tmp_path / "prefect.log.1"
    rotate(path)
    with path.open("ab", buffering=0) as writer:  # as the servers' output is opened
        for turn in (b"1", b"2"):
            writer.write(turn * 100)
            rotate(path, largest_bytes=100)
            assert path.stat().st_size == 100, "it is not too large yet"
            writer.write(turn)
            rotate(path, largest_bytes=100)
            assert kept.read_bytes() == turn * 101
            assert path.read_bytes() == b""
        writer.write(b"goes on")
    assert path.read_bytes() == b"goes on"


def test_old_leftovers_go_and_young_ones_stay(tracking_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LARGEST_LOG_BYTES", 10)
    cache, services = Settings().cache_directory, Settings().services_directory
    old, young = (cache / f".{name}.building" for name in ("old", "young"))
    for folder in (old, young, services, cache / "locks"):
        folder.mkdir(parents=True)
    (services / "worker.log").write_text("a line")
    weeks_ago = time.time() - 14 * 86_400
    os.utime(old, (weeks_ago, weeks_ago))
    tidy()
    assert not old.exists()
    assert young.exists()
    assert (services / "worker.log").read_text() == "a line"


def test_a_store_that_is_away_ends_no_night(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def away(_: float) -> None:
        raise TrackingError("The tracking store is away.")

    monkeypatch.setattr("shunter.tracking.leftovers.find_leftovers", away)
    with caplog.at_level(logging.WARNING):
        tidy()
    assert "away" in caplog.text
