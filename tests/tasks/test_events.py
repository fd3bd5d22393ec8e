"""Events about registered models reach Prefect from within a flow run, and from nowhere else."""

from typing import Any

import pytest

from shunter.tasks.run_log import announce


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr("prefect.events.emit_event", lambda **event: found.append(event))
    return found


def test_an_event_names_the_model_its_version_and_why(
    emitted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", "a1")
    announce("not-promoted", "shop", 3, "Not promoted: it is noise.")
    [event] = emitted
    assert event["event"] == "shunter.model.not-promoted"
    assert event["resource"]["prefect.resource.id"] == "shunter.model.shop"
    assert event["related"][0]["prefect.resource.id"] == "prefect.flow-run.a1"
    assert event["payload"] == {"model": "shop", "version": 3, "reason": "Not promoted: it is noise."}


def test_outside_of_a_flow_run_nothing_is_emitted(emitted: list[dict[str, Any]]) -> None:
    announce("promoted", "shop", 3, "It is better.")
    assert emitted == []
