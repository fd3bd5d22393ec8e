"""A finished run's name tells it from others."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from shunter.engine.ensemble.result import Member
from shunter.flows.train import run_name


def member(name: str, weight: float) -> Member:
    return Member(name=name, weight=weight)


@pytest.mark.parametrize(
    ("auc", "members", "name"),
    [
        (0.70312, [member("member-1", 1)], "0.7031 AUC dlrm on logs 2026-03-09 10:05"),
        (float("nan"), [member("member-1", 1)], "dlrm on logs 2026-03-09 10:05"),
        (0.7, [member("fm", 1), member("member-0", 0)], "0.7000 AUC fm on logs 2026-03-09 10:05"),
        (0.7, [*(member(f"member-{n}", 0.3) for n in range(3)), member("lr", 0.1)], "0.7000 AUC dlrm+lr on logs 2026-"),
    ],
)
def test_quality_what_it_holds_data_and_date(auc: float, members: list[Member], name: str) -> None:
    result: Any = SimpleNamespace(test=SimpleNamespace(auc=auc), members=members)
    assert run_name("logs", "dlrm", result, datetime(2026, 3, 9, 10, 5, tzinfo=UTC)).startswith(name)
