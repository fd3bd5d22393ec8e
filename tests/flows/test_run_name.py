"""A finished run's name tells it from others."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from flows.train import run_name


@pytest.mark.parametrize(
    ("auc", "name"), [(0.70312, "logs dlrm AUC 0.7031 2026-03-09 10:05"), (float("nan"), "logs dlrm 2026-03-09 10:05")]
)
def test_data_model_quality_and_date(auc: float, name: str) -> None:
    result: Any = SimpleNamespace(test=SimpleNamespace(auc=auc))
    assert run_name("logs", "dlrm", result, datetime(2026, 3, 9, 10, 5, tzinfo=UTC)) == name
