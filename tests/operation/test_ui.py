"""The web interfaces as `shunter ui` starts them, with the operator's passwords: who is answered, and how they stop."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from prefect import flow, get_client
from prefect.schedules import Cron
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from shunter.flows.command.services import free_port

pytestmark = pytest.mark.slow
PREFECT_LOGIN, MLFLOW_LOGIN = "admin:correct horse", "admin:long and random too"
PATIENCE_SECONDS = 60  # with a command that does not end; nothing is said of how long one takes


@dataclass(frozen=True)
class Interfaces:
    """The running command: its process, what it has printed, and the ports of its servers."""

    process: "subprocess.Popen[str]"
    printed: list[str]
    prefect: int
    mlflow: int


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory, furnish: Callable[[Path], Path]) -> Iterator[Interfaces]:
    """`shunter ui`, once it has printed both addresses."""
    home = furnish(tmp_path_factory.mktemp("home"))
    prefect, mlflow = free_port(), free_port()
    chosen = {
        "SHUNTER_HOME": str(home),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_API_AUTH_STRING": PREFECT_LOGIN,
        "PREFECT_API_AUTH_STRING": PREFECT_LOGIN,
        "SHUNTER_MLFLOW_BASIC_AUTH": "true",
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "long and random",
        "MLFLOW_AUTH_ADMIN_PASSWORD": MLFLOW_LOGIN.partition(":")[2],
    }
    command = [Path(sys.executable).with_name("shunter"), "ui"]
    command += ["--prefect-port", str(prefect), "--mlflow-port", str(mlflow)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **chosen}) as process:
        assert process.stdout is not None
        yield Interfaces(process, [process.stdout.readline().strip() for _ in range(3)], prefect, mlflow)
        process.kill()


def answer(url: str, login: str | None = None, **headers: str) -> tuple[int, bytes]:
    """Return the status and the text with which a server answers."""
    if login is not None:
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE_SECONDS) as found:
            return found.status, found.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_addresses_and_the_way_in_are_printed(ui: Interfaces) -> None:
    advice, *addresses = ui.printed
    assert "PREFECT_SERVER_API_AUTH_STRING" in advice
    assert addresses == [f"Prefect: http://127.0.0.1:{ui.prefect}", f"MLflow: http://127.0.0.1:{ui.mlflow}"]


def test_prefect_shows_its_page_and_answers_nobody_without_its_password(ui: Interfaces) -> None:
    url = f"http://127.0.0.1:{ui.prefect}"
    assert json.loads(answer(f"{url}/api/health")[1]) is True
    assert b"Prefect" in answer(url)[1]
    version = f"{url}/api/admin/version"
    assert [answer(version, login)[0] for login in (None, "admin:wrong", PREFECT_LOGIN)] == [401, 401, 200]


def test_mlflow_answers_nobody_without_its_password_and_no_foreign_host(ui: Interfaces) -> None:
    url = f"http://127.0.0.1:{ui.mlflow}"
    search = f"{url}/api/2.0/mlflow/experiments/search?max_results=5"
    assert [answer(search, login)[0] for login in (None, "admin:password1234", MLFLOW_LOGIN)] == [401, 401, 200]
    assert b"MLflow" in answer(url, MLFLOW_LOGIN)[1]
    for path in (search, url):
        assert answer(path, MLFLOW_LOGIN, Host="evil.example")[0] == 403
    commands = [" ".join(one.cmdline()) for one in psutil.Process(ui.process.pid).children(recursive=True)]
    assert [command for command in commands if "mlflow" in command]
    assert not [command for command in commands if "huey" in command or "job" in command], "it serves, and no more"


def test_a_cron_deployment_is_scheduled(ui: Interfaces) -> None:
    """With SQLAlchemy 2.1 the scheduler fails on every pass, and no scheduled run is ever created."""

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

    address = f"http://127.0.0.1:{ui.prefect}/api"
    with temporary_settings({PREFECT_API_URL: address, PREFECT_API_AUTH_STRING: PREFECT_LOGIN}):
        states = asyncio.run(scheduled())
    assert states
    assert set(states) == {"SCHEDULED"}


def test_told_to_end_it_stops_its_servers(ui: Interfaces) -> None:
    """The last of this file: nothing answers after it."""
    ui.process.send_signal(signal.SIGTERM)
    assert ui.process.wait(PATIENCE_SECONDS) == 0
    for port in (ui.prefect, ui.mlflow):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
