"""Prefect's temporary server is killed in the middle: it comes back, or the command says what to do."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import httpx
import pytest

from flows.command import server_watch
from flows.command import start as starting
from flows.command.server_watch import MOST_STARTS, ServerWatch
from flows.command.services import free_port
from shunter.errors import ShunterError
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


class Server:
    """Stands for Prefect's: a process of its own that answers on a port, which begins without importing Prefect."""

    def __init__(self) -> None:
        port = free_port()
        self.api_url, self._command = f"http://127.0.0.1:{port}/api", [sys.executable, "-c", ANSWERS, str(port)]
        self.server_process = self._run_uvicorn_command()

    def _run_uvicorn_command(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command)


@contextmanager
def server() -> Iterator[Server]:
    found = Server()
    try:
        yield found
    finally:
        found.server_process.kill()
        found.server_process.wait()


def end(found: Server) -> None:
    found.server_process.kill()
    found.server_process.wait()


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

    monkeypatch.setattr(starting, "temporary_server_starting", of_somebody_else)
    with pytest.raises(ShunterError, match=r"went away .* give the same command again"):
        starting.start("lost_flow:lost", TrainRequest())


def test_a_flow_that_missed_its_own_server_goes_on_when_it_is_back(
    flow: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(starting, "temporary_server_starting", server)

    def missed(request: TrainRequest, *, fresh: bool = False) -> str:
        asked.append(fresh)
        if len(asked) == 1:
            (watched,) = watches
            end(watched)
            raise httpx.ConnectError("[Errno 111] Connection refused")
        return "trained"

    watches: list[Server] = []
    begin = ServerWatch.__init__

    def noted(watch: ServerWatch, found: Server) -> None:
        watches.append(found)
        begin(watch, found)  # type: ignore[arg-type]

    monkeypatch.setattr(ServerWatch, "__init__", noted)
    flow.missed = missed  # type: ignore[attr-defined]
    assert starting.start("lost_flow:missed", TrainRequest(), fresh=True) == "trained"
    assert asked == [True, False], "what was begun anew is not forgotten again"


def test_a_server_that_is_killed_answers_again_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with server() as found, ServerWatch(found):  # type: ignore[arg-type]
        first = found.server_process
        end(found)
        deadline = time.monotonic() + 60.0
        while found.server_process is first and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found.server_process.poll() is None
    assert capsys.readouterr().err.count("is started again") == 1


def test_a_server_that_ends_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watch, "PATIENCE_SECONDS", 0.1)
    with server() as found, ServerWatch(found) as watch:  # type: ignore[arg-type]
        found._command = [sys.executable, "-c", ""]
        answers = []
        for _ in range(MOST_STARTS + 1):
            end(found)
            answers.append(watch.is_back())
        assert not any(answers)
        last = found.server_process
        end(found)
        assert not watch.is_back()
        assert found.server_process is last


def test_a_server_that_ends_with_the_command_stays_away() -> None:
    with server() as found:
        with ServerWatch(found):  # type: ignore[arg-type]
            pass
        last = found.server_process
        end(found)
        assert found.server_process is last


def test_prefect_starts_its_server_as_the_watch_expects() -> None:
    from prefect.server.api.server import SubprocessASGIServer

    own = SubprocessASGIServer(port=free_port())
    assert own.server_process is None
    assert own.api_url.endswith("/api")
    assert callable(own._run_uvicorn_command)
