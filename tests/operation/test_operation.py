"""`shunter up` with its real servers and worker: what it starts, what it leaves alone, and what survives a fault."""

import contextlib
import json
import os
import signal
import sqlite3
import stat
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from prefect import flow, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.objects import FlowRun, State
from prefect.deployments import run_deployment
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Completed, Pending, Running
from prefect.types.entrypoint import EntrypointType

from shunter.flows.command.daemons import find
from shunter.flows.command.passwords import password_path, prefect_login
from shunter.flows.command.services import free_port
from shunter.operation.background_services import Ports, down, login_advice, running_services, up
from shunter.operation.recovery import processes_of
from shunter.operation.servers import WORK_POOL
from shunter.settings import PROJECT_ROOT
from tests.listeners import listening, public

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 600  # with what does not happen; nothing is said of how long anything takes


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path]) -> dict[str, str]:
    home = furnish(tmp_path_factory.mktemp("home"))
    return {"SHUNTER_HOME": str(home), "PREFECT_HOME": str(home / "prefect")}


@pytest.fixture(scope="module")
def ports() -> Ports:
    return Ports(prefect=free_port(), mlflow=free_port())


@pytest.fixture(scope="module")
def started(environment: dict[str, str], ports: Ports) -> Iterator[list[str]]:
    """Everything is up for the tests of this file; what was said of it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
        said: list[str] = []
        up(ports, PROJECT_ROOT, said.append)
    yield said
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        down(lambda sentence: None)
        assert running_services() == []


@pytest.fixture
def server(
    started: list[str], environment: dict[str, str], ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The test shares the home and talks to the server."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    url = f"http://127.0.0.1:{ports.prefect}/api"
    with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: prefect_login()}):
        yield


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen within {PATIENCE_SECONDS} seconds")


def read_run(flow_run_id: UUID) -> FlowRun:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(flow_run_id)


def state_of(flow_run_id: UUID) -> State:
    state = read_run(flow_run_id).state
    assert state is not None
    return state


def step_of(folder: Path) -> int:
    """Step of the checkpoint, 0 where there is none."""
    path = folder / "checkpoint" / "checkpoint.json"
    return json.loads(path.read_text())["state"]["step"] if path.exists() else 0


def trigger(folder: Path) -> UUID:
    """Start the endless training on the worker, and wait until it has saved its state once."""
    from tests.operation.deployed import endless

    deployment: Any = endless.to_deployment(
        "endless", work_pool_name=WORK_POOL, entrypoint_type=EntrypointType.MODULE_PATH
    ).apply()  # pyright: ignore[reportAttributeAccessIssue]
    into_project = {"prefect.deployments.steps.set_working_directory": {"directory": str(PROJECT_ROOT)}}
    with get_client(sync_client=True) as client:  # runs start in the folder of own data
        client.update_deployment(deployment, DeploymentUpdate(pull_steps=[into_project]))
    run: FlowRun = run_deployment("endless/endless", parameters={"folder": str(folder)}, timeout=0)  # pyright: ignore
    wait_for(lambda: step_of(folder), "the first checkpoint")
    return run.id


def cancel(flow_run_id: UUID) -> None:
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run_id, Cancelling())


def test_up_says_what_it_has_started_and_again_what_is_there(server: None, started: list[str], ports: Ports) -> None:
    assert started[:3] == [
        f"Prefect: http://127.0.0.1:{ports.prefect}",
        f"MLflow: http://127.0.0.1:{ports.mlflow}",
        "Worker: ready",
    ]
    assert started[3].startswith("Deployments: train, select, profile, tune")
    assert login_advice() in started
    before = running_services()
    again: list[str] = []
    up(Ports.chosen(None, None), PROJECT_ROOT, again.append)
    assert [sentence.partition(" is already up")[0] for sentence in again[:3]] == ["Prefect", "MLflow", "Worker"]
    assert running_services() == before


def test_strangers_pages_and_names_are_refused_and_nobody_listens_to_other_machines(server: None, ports: Ports) -> None:
    login = prefect_login()
    assert stat.S_IMODE(password_path().stat().st_mode) == 0o600
    known = {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
    prefect, mlflow = (f"http://127.0.0.1:{port}" for port in (ports.prefect, ports.mlflow))
    evil, ours = {"Origin": "http://evil.example"}, {"Origin": prefect}
    version, token = f"{prefect}/api/admin/version", f"{prefect}/api/csrf-token?client=evil"
    for stranger in ({}, evil, {"Host": "evil.example"}):
        assert [answer_to(url, **stranger)[0] for url in (version, token)] == [401, 401]
    runs = f"{prefect}/api/flow_runs/filter"
    assert answer_to(runs, {}, **known, **evil)[0] == 403, "without the token that guards against forged requests"
    assert answer_to(version, **known, **ours) == (200, prefect)
    assert answer_to(version, **known, **evil) == (200, None), "the browser keeps it from the page"
    experiments = f"{mlflow}/api/2.0/mlflow/experiments/create"
    assert answer_to(experiments, {"name": "evil"}, **evil)[0] == 403
    assert answer_to(experiments, {"name": "evil"}, Host="evil.example")[0] == 403
    assert answer_to(experiments, {"name": "good"}, Origin=mlflow)[0] == 200
    for daemon in running_services():
        process = psutil.Process(daemon.pid)
        assert listening(process)
        assert not public(listening(process)), daemon.name
        assert login.partition(":")[2] not in daemon.log.read_text() + " ".join(process.cmdline())


def answer_to(url: str, body: Any = None, **headers: str) -> tuple[int, str | None]:
    """Status of the answer, and whose page may read it."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers["Access-Control-Allow-Origin"]
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Access-Control-Allow-Origin"]


def test_the_server_answers_every_request_beside_a_second_writer_of_its_database(
    server: None, environment: dict[str, str]
) -> None:
    """Without `begin_as_writer`, Prefect answers 503 to some of them."""
    has_ended, answers = threading.Event(), Counter[int]()
    writer = threading.Thread(target=write_until, args=(Path(environment["PREFECT_HOME"]) / "prefect.db", has_ended))
    writer.start()
    try:
        with get_client(sync_client=True) as client:
            client._client.event_hooks["response"].append(lambda response: answers.update([response.status_code]))
            for _ in range(25):
                run = client.create_flow_run(beside_a_writer, state=Pending())
                for state in (Running(), Completed()):
                    client.set_flow_run_state(run.id, state)
    finally:
        has_ended.set()
        writer.join()
    assert sum(answers.values()) >= 75
    assert set(answers) <= {200, 201}


@flow(name="beside-a-writer")
def beside_a_writer() -> None:
    """Do nothing; its runs only get states."""


def write_until(path: Path, has_ended: threading.Event) -> None:
    """Write to Prefect's database again and again, from another connection."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE_SECONDS)) as database:
        while not has_ended.wait(0.001):
            database.execute("UPDATE flow SET updated = updated")


def cancelled(folder: Path) -> int:
    """Start the endless training and cancel it; the step that it has saved once its processes have ended."""
    run = trigger(folder)
    cancel(run)
    wait_for(lambda: not processes_of(run), "the end of its processes")
    assert wait_for(lambda: state_of(run).is_final() and state_of(run), "the final state").is_cancelled()
    return step_of(folder)


def test_cancelled_run_stops_with_its_children_after_a_step(server: None, tmp_path: Path) -> None:
    assert cancelled(tmp_path) % 200, "it was saved when it was told to stop, not when that was due"


@pytest.mark.long
def test_cancelled_run_is_resumed_from_where_it_stopped(server: None, tmp_path: Path) -> None:
    saved = cancelled(tmp_path)
    again = trigger(tmp_path)
    assert wait_for(lambda: step_of(tmp_path) > saved, "a further checkpoint")
    cancel(again)
    wait_for(lambda: state_of(again).is_final(), "the final state")


@pytest.mark.long
def test_training_outlives_the_loss_of_its_worker_and_of_the_server_and_is_cancelled_through_the_next_one(
    server: None, tmp_path: Path
) -> None:
    run = trigger(tmp_path)
    worker = find("Worker")
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: find("Worker") is None, "the end of the worker")
    said: list[str] = []
    up(Ports.chosen(None, None), PROJECT_ROOT, said.append)
    assert f"{read_run(run).name} has lost its worker: it resumes from its last checkpoint." in said
    saved = step_of(tmp_path)
    wait_for(lambda: step_of(tmp_path) > saved, "a further checkpoint")
    assert read_run(run).run_count == 2
    assert "Crashed" in {state.name for state in states_of(run)}

    prefect, worker = find("Prefect"), find("Worker")
    assert prefect is not None
    os.killpg(prefect.pid, signal.SIGKILL)
    saved = step_of(tmp_path)
    wait_for(lambda: step_of(tmp_path) > saved, "a further checkpoint without a server")
    assert find("Prefect") is None
    saved = step_of(tmp_path)
    said.clear()
    up(Ports.chosen(None, None), PROJECT_ROOT, said.append)
    restarted = find("Prefect")
    assert restarted is not None
    assert restarted.url == prefect.url
    assert "The worker had lost its server: it is restarted." in said
    assert find("Worker") not in (None, worker)
    wait_for(lambda: read_run(run).run_count == 3 and step_of(tmp_path) > saved, "a further checkpoint")
    cancel(run)
    assert wait_for(lambda: state_of(run).is_final() and state_of(run), "the final state").is_cancelled()
    assert not processes_of(run)


def states_of(flow_run_id: UUID) -> list[State]:
    with get_client(sync_client=True) as client:
        return client.read_flow_run_states(flow_run_id)
