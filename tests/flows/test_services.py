"""The web interfaces really start, answer on loopback, show what was trained, and stop."""

import json
import shutil
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from shunter.errors import RequestError, ShunterError
from shunter.flows.command.passwords import password_path
from shunter.flows.command.services import (
    JOBS,
    Service,
    mlflow_service,
    prefect_service,
    running,
    serve,
    wait_until_ready,
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture
def prefect_home(shunter_home: Path, empty_prefect: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = shunter_home / "prefect"
    home.mkdir(parents=True)
    shutil.copy(empty_prefect, home / "prefect.db")
    monkeypatch.setenv("PREFECT_HOME", str(home))
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")


def test_port_in_use_names_the_option_that_changes_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RequestError, match="choose another port with --prefect-port"):
            serve([prefect_service(taken.getsockname()[1])], on_ready=print)


def test_server_that_ends_while_starting_is_reported_at_once() -> None:
    broken = Service(name="Broken", command=("false",), environment={}, port=free_port(), health_path="/")
    with running(broken) as process, pytest.raises(ShunterError, match="Broken ended while starting"):
        wait_until_ready(broken, process)


COMPUTES_FIRST = """
import http.server, sys, time
while time.process_time() < 3:
    pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.flows.command.services.PATIENCE_SECONDS", 2)
    monkeypatch.setattr("shunter.flows.command.services.PROGRESS_SECONDS", 0.02)


def test_a_slow_machine_is_waited_for_as_long_as_its_server_goes_on(impatience: None) -> None:
    port = free_port()
    command = (sys.executable, "-c", COMPUTES_FIRST, str(port))
    slow = Service(name="Slow", command=command, environment={}, port=port, health_path="/")
    with running(slow) as process:
        wait_until_ready(slow, process)
        assert get(slow.url)[0] == 200, "it was waited for until it answered"
        assert process.poll() is None


def test_a_server_that_does_nothing_is_not_waited_for(impatience: None) -> None:
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    idle = Service(name="Idle", command=command, environment={}, port=free_port(), health_path="/")
    with running(idle) as process, pytest.raises(ShunterError, match=r"Idle does not answer .* has done nothing for 2"):
        wait_until_ready(idle, process)


@pytest.mark.slow
def test_mlflow_answers_on_loopback_and_refuses_a_foreign_host(tracking_root: Path) -> None:
    service = mlflow_service(free_port())
    with running(service) as process:
        wait_until_ready(service, process)
        status, page = get(service.url)
        assert status == 200
        assert b"MLflow" in page
        assert get(service.url, Host="evil.example")[0] == 403
        commands = [" ".join(one.cmdline()) for one in psutil.Process(process.pid).children(recursive=True)]
        assert not [command for command in commands if "huey" in command or "job" in command], "it serves, and no more"
    assert process.poll() is not None


def test_jobs_of_mlflow_run_where_the_user_wants_them(monkeypatch: pytest.MonkeyPatch, tracking_root: Path) -> None:
    assert mlflow_service(5000).environment[JOBS] == "false"
    monkeypatch.setenv(JOBS, "true")
    assert mlflow_service(5000).environment[JOBS] == "true"


@pytest.mark.slow
def test_prefect_answers_and_schedules_a_cron_deployment(prefect_home: None) -> None:
    """With SQLAlchemy 2.1 the scheduler fails on every pass, and no scheduled run is ever created."""
    import asyncio

    from prefect import flow, get_client
    from prefect.schedules import Cron
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    @flow
    def nothing() -> None:
        """A flow to schedule."""

    async def scheduled() -> list[str]:
        deployment = await nothing.ato_deployment(name="pin", schedules=[Cron("0 2 * * *")])
        await deployment.aapply()
        async with get_client() as client:
            for _ in range(90):
                runs = await client.read_flow_runs(limit=5)
                if runs:
                    return [run.state.type.value for run in runs if run.state]
                await asyncio.sleep(1)
        return []

    service = prefect_service(free_port())
    with running(service) as process:
        wait_until_ready(service, process)
        assert json.loads(get(service.url + "/api/health")[1]) is True
        assert b"Prefect" in get(service.url)[1]
        login = service.environment["PREFECT_SERVER_API_AUTH_STRING"]
        with temporary_settings({PREFECT_API_URL: service.url + "/api", PREFECT_API_AUTH_STRING: login}):
            states = asyncio.run(scheduled())
    assert states
    assert set(states) == {"SCHEDULED"}


@pytest.mark.slow
def test_command_ui_prints_both_addresses_and_stops_its_servers_when_told_to(
    prefect_home: None, tracking_root: Path
) -> None:
    import signal
    import subprocess

    ports = (free_port(), free_port())
    command = [Path(sys.executable).with_name("shunter"), "ui"]
    command += ["--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    ui = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert ui.stdout is not None
    assert str(password_path()) in ui.stdout.readline()
    addresses = [ui.stdout.readline().strip() for _ in range(2)]
    assert addresses == [f"Prefect: http://127.0.0.1:{ports[0]}", f"MLflow: http://127.0.0.1:{ports[1]}"]
    ui.send_signal(signal.SIGTERM)
    assert ui.wait(60) == 0
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
