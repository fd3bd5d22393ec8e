"""Prefect's server of a home: found by the next command, kept while one uses it, ended when none does."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.flows.command import daemons, temporary_server
from shunter.flows.command.daemons import IDLE, IdleServer, stop_idle_servers, use_idle_server
from shunter.flows.command.passwords import password_path, protect_temporary_server
from shunter.flows.command.services import Service, free_port, wait_until_ready
from shunter.flows.command.temporary_server import OWNER, end_orphans, server_starting
from shunter.flows.command.temporary_server_process import wait_until_idle
from shunter.settings import Settings
from tests.listeners import listening_sockets

ANSWERS = """
import http.server, sys, threading
from shunter.flows.command.temporary_server_process import wait_until_idle
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy)
threading.Thread(target=server.serve_forever, daemon=True).start()
wait_until_idle(sys.argv[2], sys.argv[3], float(sys.argv[4]), poll_seconds=0.05)
"""


def little(port: int | None = None, *_: object, **options: dict[str, str]) -> Service:
    """Stands for Prefect's: answers as if it were healthy, and ends as Prefect's server does."""
    port = port or free_port()
    command, environment = ("-c", ANSWERS, str(port)), options.get("environment", {})
    return Service(name="little", command=command, environment=environment, port=port, health_path="/api/health")


@pytest.fixture(autouse=True)
def home(shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHUNTER_SERVER_IDLE_MINUTES", "10")
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING", OWNER):
        monkeypatch.setenv(name, "")  # so that what the test sets is taken back
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_HOME", str(shunter_home / "prefect"))
    monkeypatch.setenv("PREFECT_SERVER_CORS_ALLOWED_ORIGINS", "")
    shunter_home.mkdir()
    yield shunter_home
    for record in Settings().services_directory.glob(f"{IDLE}-*.json"):
        if daemon := daemons.find(record.stem):
            daemons.stop(daemon)


def wait_for_end(used: IdleServer) -> None:
    pid = used.daemon.pid
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        assert not used.daemon.is_alive


def test_the_next_command_finds_it_and_the_last_one_lets_it_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_SERVER_IDLE_MINUTES", f"{0.2 / 60}")
    first = use_idle_server(little(), "login")
    second = use_idle_server(little(), "login")
    assert second.daemon == first.daemon
    first.lock.close()
    with pytest.raises(BlockingIOError), first.daemon.log.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    wait_until_ready(little(second.daemon.port), second.daemon)
    assert second.daemon.is_alive
    second.lock.close()
    wait_for_end(second)
    assert use_idle_server(little(), "login").daemon != first.daemon


def test_a_killed_command_keeps_it_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_SERVER_IDLE_MINUTES", "0.001")
    used = use_idle_server(little(), "login")
    script = "import fcntl, sys, time\nf = open(sys.argv[1], 'ab')\nfcntl.flock(f, fcntl.LOCK_SH)\nprint(flush=True)\n"
    program = [sys.executable, "-c", f"{script}time.sleep(600)", str(used.daemon.log.with_suffix(".lock"))]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        used.lock.close()
        other.send_signal(signal.SIGKILL)
    wait_for_end(used)


def test_two_commands_at_once_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[IdleServer] = []
    threads = [threading.Thread(target=lambda: found.append(use_idle_server(little(), "login"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({used.daemon.pid for used in found}) == 1


def test_another_version_or_login_starts_its_own_and_stops_the_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    first, in_use = use_idle_server(little(), "login"), use_idle_server(little(), "another")
    assert in_use.daemon.pid != first.daemon.pid
    first.lock.close()
    monkeypatch.setattr(daemons, "version", lambda name: "99")
    newer = use_idle_server(little(), "login")
    assert {daemon.pid for daemon in daemons.idle_servers()} == {in_use.daemon.pid, newer.daemon.pid}
    assert newer.daemon.pid not in {first.daemon.pid, in_use.daemon.pid}
    assert (first.daemon.is_alive, in_use.daemon.is_alive) == (False, True)
    assert stop_idle_servers() == 0
    for used in (in_use, newer):
        used.lock.close()
    assert stop_idle_servers() == 2
    assert stop_idle_servers() == 0


def test_it_ends_when_its_record_is_gone(tmp_path: Path) -> None:
    lock, record = tmp_path / "lock", tmp_path / "record"
    for idle_seconds, is_recorded in ((600.0, False), (0.0, True)):
        if is_recorded:
            record.touch()
        ended = wait_until_idle(str(lock), str(record), idle_seconds, poll_seconds=0.01)
        with lock.open("ab") as command, pytest.raises(BlockingIOError):
            fcntl.flock(command, fcntl.LOCK_SH | fcntl.LOCK_NB)  # no command takes a server that ends
        os.close(ended)


def test_a_command_uses_it_by_the_password_of_the_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_server, "_service", little)
    protect_temporary_server()
    with server_starting() as server:
        assert server is not None
        assert not server.has_started
    assert os.environ["PREFECT_API_AUTH_STRING"] == password_path().read_text()
    assert stat.S_IMODE(password_path().stat().st_mode) == 0o600
    with urllib.request.urlopen(os.environ["PREFECT_API_URL"] + "/health") as answer:
        assert answer.status == 200
    [record] = Settings().services_directory.glob(f"{IDLE}-*.json")
    daemon = daemons.find(record.stem)
    assert daemon is not None
    assert server.is_running
    assert end_orphans() == 0, "it belongs to no command"
    server.stop()
    assert daemon.is_alive
    assert stop_idle_servers() == 0, "this process uses it"


def test_a_home_that_holds_no_file_gets_a_temporary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> IdleServer:
        raise OSError(28, "No space left on device")

    def served(port: int, *_: object, **__: object) -> Service:
        command = ("-m", "http.server", str(port), "-b", "127.0.0.1")
        return Service(name="little", command=command, environment={}, port=port, health_path="/")

    monkeypatch.setattr(temporary_server, "_service", served)
    monkeypatch.setattr(temporary_server, "use_idle_server", full)
    with server_starting() as server:
        assert server is not None
        assert server.has_started
    server.stop()


@pytest.mark.slow
def test_prefects_own_listens_on_loopback_alone_and_ends_by_itself(
    home: Path, empty_prefect: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    import psutil

    (home / "prefect").mkdir()
    shutil.copy(empty_prefect, home / "prefect" / "prefect.db")
    monkeypatch.setenv("SHUNTER_SERVER_IDLE_MINUTES", "0.01")
    service = temporary_server._service(free_port())
    used = use_idle_server(service, "login")
    wait_until_ready(service, used.daemon)
    assert listening_sockets(psutil.Process(used.daemon.pid)) == {("127.0.0.1", service.port)}
    used.lock.close()
    wait_for_end(used)
