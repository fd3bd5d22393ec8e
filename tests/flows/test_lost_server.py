"""Prefect's temporary server is killed in the middle: it comes back, or the command says what to do."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from shunter.errors import ShunterError
from shunter.flows.command import daemons, temporary_server
from shunter.flows.command import start as starting
from shunter.flows.command.services import Service, free_port
from shunter.flows.command.temporary_server import (
    MOST_STARTS,
    ServerWatch,
    SharedServer,
    TemporaryServer,
    shared_server,
)
from shunter.requests import TrainRequest

ANSWERS = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def little(port: int) -> Service:
    """Stands for Prefect's: a process of its own that answers on a port, which begins without importing Prefect."""
    command = ("-c", ANSWERS, str(port))
    return Service(name="little", command=command, environment={}, port=port, health_path="/api/health")


@contextmanager
def server() -> Iterator[TemporaryServer]:
    found = TemporaryServer(little(free_port()))
    found.start()
    try:
        yield found
    finally:
        end(found)


def end(found: TemporaryServer) -> None:
    found.process.kill()
    found.process.wait()


@pytest.fixture(autouse=True)
def own_prefect_home(shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(shunter_home / "prefect"))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    flow = ModuleType("lost_flow")
    monkeypatch.setitem(sys.modules, "lost_flow", flow)
    return flow


def test_a_flow_that_cannot_reach_it_says_to_give_the_command_again(
    flow: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(request: TrainRequest) -> None:
        raise httpx.ConnectError("[Errno 111] Connection refused")

    flow.lost = lost  # type: ignore[attr-defined]

    @contextmanager
    def of_somebody_else() -> Iterator[None]:
        yield None

    monkeypatch.setattr(starting, "server_starting", of_somebody_else)
    with pytest.raises(ShunterError, match=r"stopped during the run .* give the same command again"):
        starting.start("lost_flow:lost", TrainRequest())


def test_a_flow_that_missed_its_own_server_goes_on_when_it_is_back(
    flow: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(starting, "server_starting", server)

    def missed(request: TrainRequest, *, fresh: bool = False) -> str:
        asked.append(fresh)
        if len(asked) == 1:
            (watched,) = watches
            end(watched)
            raise httpx.ConnectError("[Errno 111] Connection refused")
        return "trained"

    watches: list[TemporaryServer] = []
    begin = ServerWatch.__init__

    def noted(watch: ServerWatch, found: TemporaryServer) -> None:
        watches.append(found)
        begin(watch, found)

    monkeypatch.setattr(ServerWatch, "__init__", noted)
    flow.missed = missed  # type: ignore[attr-defined]
    assert starting.start("lost_flow:missed", TrainRequest(), fresh=True) == "trained"
    assert asked == [True, False], "what was begun anew is not forgotten again"
    assert not watches[0].is_running, "and has ended before what it took is added up"


def test_a_server_that_is_killed_answers_again_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with server() as found, ServerWatch(found):
        first = found.process
        end(found)
        deadline = time.monotonic() + 60.0
        while found.process is first and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found.process.poll() is None
    assert capsys.readouterr().err.count("restarted") == 1


def test_a_server_that_ends_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_server, "BACK_SECONDS", 0.1)
    with server() as found, ServerWatch(found) as watch:
        found.service = replace(found.service, command=("-c", ""))
        answers = []
        for _ in range(MOST_STARTS + 1):
            end(found)
            answers.append(watch.is_back())
        assert not any(answers)
        last = found.process
        end(found)
        assert not watch.is_back()
        assert found.process is last


def test_a_server_that_ends_with_the_command_stays_away() -> None:
    with server() as found:
        with ServerWatch(found):
            pass
        last = found.process
        end(found)
        assert found.process is last


@pytest.fixture
def of_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[daemons.Daemon]:
    """The server of `shunter up`, which this process uses."""
    daemon, process = daemons.start(replace(little(free_port()), name="Prefect"))
    monkeypatch.setenv("PREFECT_API_URL", f"{daemon.url}/api")
    while not answers(daemon.port):
        time.sleep(0.05)
    yield daemon
    process.kill()
    process.wait()


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/").is_success
    except httpx.HTTPError:
        return False


def successors(daemon: daemons.Daemon, commands: int) -> list[SharedServer]:
    """Servers as so many commands share them, each with a little one to take its place."""
    found = [shared_server() for _ in range(commands)]
    for server in found:
        assert server is not None
        server.service = little(daemon.port)
    return [server for server in found if server is not None]


def test_a_server_of_up_that_is_stopped_under_commands_has_one_successor_at_a_time(of_up: daemons.Daemon) -> None:
    servers = successors(of_up, 2)
    with ExitStack() as watches:
        for server in servers:
            watches.enter_context(ServerWatch(server))
            watches.callback(server.stop)
        daemons.stop(of_up)
        deadline = time.monotonic() + 60.0
        while not answers(of_up.port) and time.monotonic() < deadline:
            time.sleep(0.05)
        (first,) = listening(servers)
        first.stop()  # its command has ended
        first.service = replace(first.service, command=("-c", ""))
        while not (answers(of_up.port) and listening(servers)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert listening(servers) == [other for other in servers if other is not first]


def listening(servers: list[SharedServer]) -> list[SharedServer]:
    """Return those whose own process has the port; one that found it taken ends."""
    for server in servers:
        if server.has_started:
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(2.0)
    return [server for server in servers if server.has_started and server.process.poll() is None]


def test_a_server_of_somebody_else_is_not_shared(of_up: daemons.Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example/api")
    assert shared_server() is None
    with ServerWatch(shared_server()) as watch:
        assert not watch.is_back()
