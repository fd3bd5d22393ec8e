"""The flow that only chooses, on real data, with a real Prefect server and a real store."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from shunter.errors import InfeasibleError, RequestError
from shunter.flows.command import cli, flow_commands
from shunter.flows.command.cli import app
from shunter.flows.command.tables import MOST_ACCELERATORS, decision_as_json, decision_table, error_as_json
from shunter.flows.selection import choose_placement
from shunter.planner.decide import NoFeasiblePlacementError
from shunter.requests import Limits, SelectRequest
from shunter.tracking.links import run_link
from shunter.tracking.store import tracking_uri

pytestmark = pytest.mark.slow

QUICK = SelectRequest(data="synthetic:3000", probe_seconds=0, trials=1, max_epochs=1, ensemble_size=1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path]) -> str:
    """One home for the module: the data are ingested once."""
    return str(furnish(tmp_path_factory.mktemp("home")))


@pytest.fixture(autouse=True)
def in_that_home(home: str, monkeypatch: pytest.MonkeyPatch, prefect_server: None) -> None:
    monkeypatch.setenv("SHUNTER_HOME", home)


def test_named_accelerators_of_the_catalogue_are_compared_and_the_choice_is_kept() -> None:
    named = "H100 SXM5 80GB,A100 SXM4 80GB,V100 SXM2 16GB,L4,T4,A10,AMD EPYC 9654"
    decision = choose_placement(QUICK.model_copy(update={"offers": named}))
    accelerators = {one.candidate.placement.accelerator for one in decision.table}
    assert len(accelerators) == 8
    assert "cpu" in accelerators
    client = MlflowClient(tracking_uri())
    (run,) = client.search_runs(
        [one.experiment_id for one in client.search_experiments()], "tags.`run.kind` = 'select'", max_results=2
    )
    assert run.info.status == "FINISHED"
    assert decision.run_id == run.info.run_id
    assert run.data.tags["decision.reason"] == decision.reason
    assert {"decision.json", "decision.md", "report.html"} <= {
        one.path for one in client.list_artifacts(run.info.run_id)
    }
    as_json = json.loads(json.dumps(decision_as_json(decision), allow_nan=False))
    assert as_json["status"] == "chosen"
    assert len(as_json["table"]) == len(decision.table)
    assert all(row["lost_because"] for row in as_json["table"][1:])
    assert all(row["hours_low"] < row["hours"] < row["hours_high"] for row in as_json["table"])
    assert {row["step_source"] for row in as_json["table"]} == {"estimated"}, "nothing was measured"
    few = decision_table(decision, every_row=False)
    assert MOST_ACCELERATORS <= len(few.rows) <= MOST_ACCELERATORS + 1
    assert sum(not row[0].endswith(" *") for row in few.rows) == 1, "the best on this machine is always there"
    assert len(decision_table(decision, every_row=True).rows) == len(decision.table)


def test_of_all_accelerators_only_those_that_are_clearly_better_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of training are no reason to rent another machine; the command prints where the run is shown."""
    decision = choose_placement(QUICK)
    assert {one.candidate.placement.accelerator for one in decision.table} == {"cpu"}
    monkeypatch.setattr(flow_commands, "start", lambda flow, request: decision)
    monkeypatch.setattr(cli, "prepare_environment", lambda *, debug: None)  # it is for a whole process
    assert decision.run_id is not None
    assert run_link(decision.run_id) in CliRunner().invoke(app, ["select"]).stdout


def test_when_nothing_keeps_the_limits_the_answer_says_what_to_relax() -> None:
    request = QUICK.model_copy(update={"limits": Limits(max_hours=1e-6), "offers": "local"})
    with pytest.raises(InfeasibleError) as raised:
        choose_placement(request)
    assert isinstance(raised.value, NoFeasiblePlacementError)
    answer = json.loads(json.dumps(error_as_json(raised.value), allow_nan=False))
    assert answer["status"] == "infeasible"
    assert answer["shortfall_seconds"] > 0
    (relaxation,) = answer["relaxations"]
    relaxed = request.model_copy(update={"limits": Limits(max_hours=relaxation["bounds"]["--max-hours"] * 3)})
    assert choose_placement(relaxed).hours > 1e-6, "noise between two predictions apart, that is enough"


def test_an_unknown_accelerator_is_told_before_anything_is_measured() -> None:
    with pytest.raises(RequestError, match="'H1000'") as raised:
        choose_placement(QUICK.model_copy(update={"offers": "H1000"}))
    assert error_as_json(raised.value) == {"status": "error", "code": raised.value.code, "message": str(raised.value)}
