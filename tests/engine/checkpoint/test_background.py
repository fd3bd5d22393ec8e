"""The thread that writes runs after those that train, and what goes wrong in it is told."""

import os
import sys
import threading

import pytest
import torch

from shunter.engine.checkpoint.background import NICENESS, BackgroundWriter


@pytest.mark.skipif(sys.platform != "linux", reason="only there a thread has a priority of its own")
@pytest.mark.parametrize("gives_way", [False, True])
def test_the_writer_alone_gives_way(gives_way: bool) -> None:
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    found: list[int] = []
    is_seen, may_end = threading.Event(), threading.Event()

    def job() -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        is_seen.set()
        may_end.wait()

    writer = BackgroundWriter()
    writer.start(job, gives_way=gives_way)
    is_seen.wait()
    may_end.set()
    writer.wait()
    assert found == [min(own + NICENESS * gives_way, 19)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own


def test_what_went_wrong_is_raised_once() -> None:
    def job() -> None:
        raise OSError("the disk is full")

    writer = BackgroundWriter()
    writer.start(job)
    with pytest.raises(OSError, match="the disk is full"):
        writer.wait()
    writer.wait()
    assert not writer.is_busy


def test_torch_works_in_the_writer_alone() -> None:
    found: list[int] = []

    def job() -> None:
        (torch.ones(1_000, 1_000) + 1).sum()
        found.append(torch.get_num_threads())

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        writer = BackgroundWriter()
        writer.start(job)
        writer.wait()
        assert torch.get_num_threads() == 2, "training keeps its own"
    finally:
        torch.set_num_threads(before)
    assert found == [1]
