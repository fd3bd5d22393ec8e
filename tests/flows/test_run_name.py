"""A finished run's name tells it from others."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from shunter.engine.ensemble.result import EnsembleResult, Member
from shunter.engine.metrics import Metrics
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
    test = Metrics(auc=auc, logloss=0.6, ne=0.9, calibration=1.0, rows=100, base_rate=0.3)
    result = EnsembleResult.model_construct(test=test, members=tuple(members))
    assert run_name("logs", "dlrm", result, datetime(2026, 3, 9, 10, 5, tzinfo=UTC)).startswith(name)


def test_of_predicted_numbers_the_rmse_is_named() -> None:
    test = replace(
        Metrics(auc=float("nan"), logloss=0.6, ne=0.9, calibration=1.0, rows=9, base_rate=3.0), rmse=1.25, mae=1.0
    )
    result = EnsembleResult.model_construct(test=test, members=(member("member-0", 1),))
    assert run_name("logs", "dlrm", result, datetime(2026, 3, 9, 10, 5, tzinfo=UTC)).startswith("1.2500 RMSE dlrm")
