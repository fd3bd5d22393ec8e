"""Prefect's temporary server starts beside the imports, is told to Prefect by its address, and outlives no error."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from shunter.errors import ShunterError
from shunter.flows.command import temporary_server
from shunter.flows.command.prefect_settings import PROFILES
from shunter.flows.command.services import Service
from shunter.flows.command.temporary_server import TemporaryServer, server_starting
from shunter.settings import PROJECT_ROOT

HEAVY = {"torch", "prefect", "mlflow", "optuna", "polars", "pandas", "numpy", "scipy", "sklearn", "matplotlib"}
ANSWERS = """
import http.server, sys
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy).serve_forever()
"""


@pytest.fixture
def started(shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> list[TemporaryServer]:
    """Servers that are started instead of Prefect's: each answers as if it were healthy."""
    for name in ("PREFECT_API_URL", "SHUNTER_COMMAND"):
        monkeypatch.setenv(name, "")  # so that what the test sets is taken back
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_HOME", str(shunter_home / "prefect"))
    shunter_home.mkdir()
    monkeypatch.chdir(shunter_home)
    servers = []
    start = TemporaryServer.start

    def of_little(port: int) -> Service:
        command = ("-c", ANSWERS, str(port))
        return Service(name="little", command=command, environment={}, port=port, health_path="/api/health")

    def noted(server: TemporaryServer) -> None:
        servers.append(server)
        start(server)

    monkeypatch.setattr(temporary_server, "_service", of_little)
    monkeypatch.setattr(TemporaryServer, "start", noted)
    return servers


def test_it_answers_when_the_block_is_left_and_prefect_is_told_its_address(started: list[TemporaryServer]) -> None:
    with server_starting():
        [server] = started  # while what the block does goes on
    with urllib.request.urlopen(os.environ["PREFECT_API_URL"] + "/health") as answer:
        assert answer.status == 200
    blocked = Path(f"/proc/{server.process.pid}/status").read_text().partition("SigBlk:")[2].split()[0]
    assert os.getsid(server.process.pid) == server.process.pid, "a terminal sends it nothing"
    assert int(blocked, 16) & 1 << (signal.SIGHUP - 1)
    assert signal.SIGHUP not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "but this process takes signals"
    server.stop()
    assert not server.is_running
    server.stop()


def test_what_is_refused_meanwhile_leaves_no_server_behind(started: list[TemporaryServer]) -> None:
    with pytest.raises(ShunterError, match="no such model"), server_starting():
        raise ShunterError("no such model")
    assert not started[0].is_running


def test_a_server_that_is_named_is_used(
    started: list[TemporaryServer], shunter_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(ShunterError, match="does not answer"), server_starting():
        pass
    monkeypatch.delenv("PREFECT_API_URL")
    assert temporary_server._named_server() is None
    (shunter_home / "prefect").mkdir()
    profile = 'active = "own"\n[profiles.own]\nPREFECT_API_URL = "http://127.0.0.1:8/api"\n'
    (shunter_home / "prefect" / "profiles.toml").write_text(profile)
    asked = "from shunter.flows.command.temporary_server import _named_server; print(_named_server())"
    program = [sys.executable, "-c", asked]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    environment.pop(PROFILES, None)  # a test before this one may have imported Prefect, which names the file
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=shunter_home, env=environment)
    assert done.stdout.strip() == "http://127.0.0.1:8/api"
    assert not started


def test_the_server_starts_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    """The first line is printed, and the server is on its way, before this process begins with its imports."""
    script = (
        "import sys\nfrom shunter.flows.command import temporary_server\nfrom shunter.errors import ShunterError\n"
        "def started(server):\n"
        f"    raise ShunterError(str(sorted({HEAVY} & set(sys.modules))))\n"
        "temporary_server.TemporaryServer.start = started\n"
        "sys.argv = ['shunter', 'train', '--data', 'synthetic:2000']\n"
        "from shunter.flows.cli import main\nmain()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "SHUNTER_HOME": str(tmp_path)}
    environment.pop("PREFECT_API_URL", None)
    program = [sys.executable, "-c", script]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.stdout.startswith("Training on synthetic:2000")
    assert done.stderr.strip() == "Error: []"
    assert done.returncode == ShunterError.exit_code


def test_a_flow_is_imported_without_the_server_and_without_what_only_some_steps_need() -> None:
    needless = {"prefect.server.api.server", "fastapi", "mlflow", "optuna", "sklearn", "matplotlib", "torch._dynamo"}
    script = f"import sys, shunter.flows.train\nprint(sorted({needless} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    assert done.stdout.strip() == "[]"


def test_what_a_run_has_logged_is_at_the_server_once_it_is_handed_over(prefect_server: str) -> None:
    import httpx
    from prefect import flow, get_run_logger
    from prefect.runtime import flow_run

    @flow
    def talkative() -> str:
        for line in range(3):
            get_run_logger().info("line %d", line)
        return str(flow_run.get_id())

    run = talkative()
    temporary_server.hand_over()
    asked = {"logs": {"flow_run_id": {"any_": [run]}}}
    answer = httpx.post(f"{prefect_server}/logs/filter", json=asked).raise_for_status().json()
    assert {f"line {line}" for line in range(3)} <= {log["message"] for log in answer}
