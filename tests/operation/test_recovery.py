"""Whose runs are recovered and interrupted: those of this home's worker, and of workers that are gone for good."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from prefect import get_client
from prefect.client.schemas.objects import StateType
from prefect.states import Cancelling, Running

from shunter.operation.deployments import register_deployments
from shunter.operation.recovery import WORKER_LABEL, interrupt, recover
from shunter.operation.servers import WORK_POOL, worker_name

pytestmark = pytest.mark.slow
LONG_AGO = datetime.now(UTC) - timedelta(days=1)
ELSEWHERE = "another-machine-1a2b3c4d"


@pytest.fixture(scope="module")
def registered(prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Register the deployments on a real server, once for all tests."""
    folder = tmp_path_factory.mktemp("registered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(folder / "home"))
        register_deployments(folder)


@pytest.fixture(autouse=True)
def pool(registered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody stop when asked."""
    monkeypatch.setattr("shunter.operation.recovery.GRACE_SECONDS", 0.0)


def running(worker: str) -> UUID:
    """A run that this worker has begun."""
    with get_client(sync_client=True) as client:
        run = client.create_flow_run_from_deployment(client.read_deployment_by_name("train/train").id)
        client.update_flow_run_labels(run.id, {WORKER_LABEL: worker})
        client.set_flow_run_state(run.id, Running(), force=True)
    return run.id


def beat(worker: str) -> None:
    """The worker says that it lives."""
    with get_client(sync_client=True) as client:
        client.send_worker_heartbeat(WORK_POOL, worker, heartbeat_interval_seconds=30)


def state_of(run: UUID) -> tuple[StateType | None, str | None]:
    with get_client(sync_client=True) as client:
        found = client.read_flow_run(run)
        client.delete_flow_run(run)
    return found.state_type, found.state_name


def test_what_a_living_worker_of_another_machine_runs_is_left_to_it() -> None:
    ours, theirs = running(worker_name()), running(ELSEWHERE)
    beat(ELSEWHERE)
    said: list[str] = []
    recover(said.append, server_since=LONG_AGO)
    assert state_of(theirs) == (StateType.RUNNING, "Running")
    assert state_of(ours) == (StateType.SCHEDULED, "AwaitingRetry")
    assert [sentence for sentence in said if sentence.endswith(f"is run by the worker {ELSEWHERE} and left to it.")]
    assert [sentence for sentence in said if "has lost its worker" in sentence]


def test_what_a_worker_ran_that_is_silent_for_long_goes_on_here(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, never_heard_of, silent = running(worker_name()), running("no-such-worker"), running(ELSEWHERE)
    beat(ELSEWHERE)
    recover(lambda sentence: None, server_since=datetime.now(UTC), has_worker=True)  # who could have heard it?
    with get_client(sync_client=True) as client:
        assert {client.read_flow_run(run).state_name for run in (ours, never_heard_of, silent)} == {"Running"}
    monkeypatch.setattr("shunter.operation.recovery.SILENCE", timedelta(0))
    recover(lambda sentence: None, server_since=LONG_AGO, has_worker=True)
    assert state_of(never_heard_of) == state_of(silent) == (StateType.SCHEDULED, "AwaitingRetry")
    assert state_of(ours) == (StateType.RUNNING, "Running"), "its worker lives"


def test_who_is_told_to_stop_stops_what_its_own_worker_runs_and_nothing_else() -> None:
    ours, theirs = running(worker_name()), running(ELSEWHERE)
    said: list[str] = []
    interrupt(said.append)
    assert state_of(theirs) == (StateType.RUNNING, "Running")
    assert state_of(ours) == (StateType.SCHEDULED, "AwaitingRetry")
    assert len(said) == 2


def test_a_run_without_the_name_of_a_worker_is_ours() -> None:
    with get_client(sync_client=True) as client:
        nameless = client.create_flow_run_from_deployment(client.read_deployment_by_name("train/train").id).id
        client.set_flow_run_state(nameless, Cancelling(), force=True)
    recover(lambda sentence: None, server_since=LONG_AGO)
    assert state_of(nameless) == (StateType.CANCELLED, "Cancelled")


def test_the_name_of_the_worker_stays_and_is_that_of_one_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = worker_name()
    assert name == worker_name()
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "another"))
    assert worker_name() != name
