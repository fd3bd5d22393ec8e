"""A GPU adds up in one order while a training runs, and as it did before afterwards; a processor is left alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch

from shunter.engine.config import Execution
from shunter.engine.loop import step
from shunter.engine.loop.step import applied, repeatable

MEMORY: Any = torch.utils.deterministic


def states() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        MEMORY.fill_uninitialized_memory,
    )


@pytest.fixture(params=[(False, False), (True, False), (True, True)])
def before(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[bool, bool, bool]]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    enabled, only_warned = request.param
    torch.use_deterministic_algorithms(enabled, warn_only=only_warned)
    yield states()
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("fails", [False, True])
def test_sums_come_in_one_order_within_and_as_before_afterwards(before: tuple[bool, bool, bool], fails: bool) -> None:
    with suppress(ValueError), repeatable():
        assert states() == (True, True, False)
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        with repeatable():  # evaluation within a training
            pass
        assert states() == (True, True, False)
        if fails:
            raise ValueError
    assert states() == before


def test_it_is_on_for_a_gpu_alone(before: tuple[bool, bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.device] = []

    @contextmanager
    def device(chosen: torch.device) -> Iterator[None]:
        used.append(chosen)
        yield

    with applied(Execution(threads=torch.get_num_threads())):
        assert states() == before
    monkeypatch.setattr(step.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(step.torch.cuda, "device", device)
    for tf32 in (True, False):
        with applied(Execution(device="cuda:1", threads=torch.get_num_threads(), tf32=tf32)):
            assert states() == (True, True, False)
            assert torch.backends.cuda.matmul.allow_tf32 == tf32
    assert states() == before
    assert used == [torch.device("cuda:1")] * 2, "events and kernels without tensors go to the current device"
