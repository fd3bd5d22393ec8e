"""Names of flow runs: what Prefect made up is replaced, what a user typed stays."""

from types import SimpleNamespace
from typing import Any

import pytest
from prefect.utilities.names import generate_slug

from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.requests import TrainRequest
from shunter.tasks.flow_runs import MOST_LETTERS, is_generated, named_by


def name_of(typed: str, monkeypatch: pytest.MonkeyPatch, *fields: str, **parameters: Any) -> str:
    from prefect.context import FlowRunContext

    run = SimpleNamespace(
        flow=SimpleNamespace(name="train"), flow_run=SimpleNamespace(name=typed), parameters=parameters
    )
    monkeypatch.setattr(FlowRunContext, "get", lambda: run)
    return named_by(*fields)()


def test_names_of_prefect_are_recognised() -> None:
    names = ["Small-Saola", "Handmade-Guppy", "rho700-kolandra-reach", *(generate_slug(2) for _ in range(5))]
    assert [name for name in names if not is_generated(name)] == []


@pytest.mark.parametrize("name", ["monday", "before-launch", "Small data", "train ml-100k dlrm", "2026-11"])
def test_what_a_user_types_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_generated(name)
    assert name_of(name, monkeypatch, "data", request=TrainRequest()) == name


def test_a_run_is_named_after_data_and_model(monkeypatch: pytest.MonkeyPatch) -> None:
    request = TrainRequest(data="/logs/today/clicks.parquet", model="din")
    assert name_of("Small-Saola", monkeypatch, "data", "model", request=request) == "train clicks.parquet din"
    plan = PlanRequest(data="synthetic:2000")
    assert name_of("Small-Saola", monkeypatch, "data", "model", request=plan) == "train synthetic:2000 dlrm"
    assert name_of("Small-Saola", monkeypatch, "model", model="shop") == "train shop"
    assert name_of("Small-Saola", monkeypatch, "model", model="shop/2") == "train shop/2"
    assert name_of("Small-Saola", monkeypatch, "model", model="") == "train"
    long = TrainRequest(data=",".join(["part.csv"] * 30))
    assert len(name_of("Small-Saola", monkeypatch, "data", request=long)) == len("train ") + MOST_LETTERS
