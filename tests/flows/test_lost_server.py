"""Prefect's temporary server is killed in the middle: the command says what to do."""

import sys
from types import ModuleType

import httpx
import pytest

from flows.command import start as starting
from shunter.errors import ShunterError
from shunter.requests import TrainRequest


def test_a_flow_that_cannot_reach_it_says_to_give_the_command_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(request: TrainRequest) -> None:
        raise httpx.ConnectError("[Errno 111] Connection refused")

    flow = ModuleType("lost_flow")
    flow.lost = lost  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lost_flow", flow)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(ShunterError, match=r"went away .* give the same command again"):
        starting.start("lost_flow:lost", TrainRequest())
