"""Which services start, how long one is waited for, and what is said of one that does not answer."""

import socket
import urllib.request
from pathlib import Path

import pytest

from shunter.errors import RequestError, ShunterError
from shunter.flows.command.services import (
    JOBS,
    Service,
    free_port,
    mlflow_service,
    prefect_service,
    running,
    serve,
    wait_until_ready,
)


def test_port_in_use_names_the_option_that_changes_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RequestError, match="choose another port with --prefect-port"):
            serve([prefect_service(taken.getsockname()[1])], on_ready=print)


def test_server_that_ends_while_starting_is_reported_at_once() -> None:
    broken = Service(
        name="Broken", command=("-c", "raise SystemExit(1)"), environment={}, port=free_port(), health_path="/"
    )
    with running(broken) as process, pytest.raises(ShunterError, match="Broken ended while starting"):
        wait_until_ready(broken, process)


COMPUTES_FIRST = """
import http.server, sys, time
while time.process_time() < 1.5:
    pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.flows.command.services.PATIENCE_SECONDS", 1)
    monkeypatch.setattr("shunter.flows.command.services.PROGRESS_SECONDS", 0.02)


def test_a_slow_machine_is_waited_for_as_long_as_its_server_goes_on(impatience: None) -> None:
    port = free_port()
    command = ("-c", COMPUTES_FIRST, str(port))
    slow = Service(name="Slow", command=command, environment={}, port=port, health_path="/")
    with running(slow) as process:
        wait_until_ready(slow, process)
        with urllib.request.urlopen(slow.url, timeout=30) as answer:
            assert answer.status == 200, "it was waited for until it answered"
        assert process.poll() is None


def test_a_server_that_does_nothing_is_not_waited_for(impatience: None) -> None:
    command = ("-c", "import time; time.sleep(600)")
    idle = Service(name="Idle", command=command, environment={}, port=free_port(), health_path="/")
    with (
        running(idle) as process,
        pytest.raises(ShunterError, match=r"Idle does not answer .* has done nothing for 1"),
    ):
        wait_until_ready(idle, process)


def test_jobs_of_mlflow_run_where_the_user_wants_them(monkeypatch: pytest.MonkeyPatch, tracking_root: Path) -> None:
    assert mlflow_service(5000).environment[JOBS] == "false"
    monkeypatch.setenv(JOBS, "true")
    assert mlflow_service(5000).environment[JOBS] == "true"
