"""What is done every few seconds beside the work: until its end, and whatever goes wrong with it."""

import logging
import threading

import pytest

from shunter import parallel as module
from shunter.errors import CheckpointError
from shunter.parallel import periodic

PATIENCE_SECONDS = 60


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL_SECONDS", 0.001)


def test_it_is_done_again_and_again_until_the_block_ends_even_by_an_error() -> None:
    thrice, calls = threading.Event(), []

    def work() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            thrice.set()

    def interrupted() -> None:
        with periodic(work):
            assert thrice.wait(PATIENCE_SECONDS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    done = len(calls)
    assert "regularly" not in {thread.name for thread in threading.enumerate()}
    assert len(calls) == done


def test_a_full_disk_is_told_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    thrice, calls = threading.Event(), []

    def work() -> None:
        calls.append(1)
        if len(calls) == 3:
            thrice.set()
        raise CheckpointError("The disk is full.")

    with caplog.at_level(logging.WARNING), periodic(work):
        assert thrice.wait(PATIENCE_SECONDS)
    assert caplog.messages == ["The disk is full."]
