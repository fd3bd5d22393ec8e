"""Which services start, how long one is waited for, and what is said of one that does not answer."""

import socket
from pathlib import Path

import pytest

from shunter.errors import RequestError, ShunterError
from shunter.flows.command.services import Service, free_port, wait_until_ready
from shunter.operation.servers import JOBS, mlflow_service, prefect_service, running, serve


def test_port_in_use_names_the_option_that_changes_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RequestError, match="--prefect-port"):
            serve([prefect_service(taken.getsockname()[1])], on_ready=print)


def test_server_that_ends_while_starting_is_reported_at_once() -> None:
    broken = Service(
        name="Broken", command=("-c", "raise SystemExit(1)"), environment={}, port=free_port(), health_path="/"
    )
    with running(broken) as process, pytest.raises(ShunterError, match="Broken ended while starting"):
        wait_until_ready(broken, process)


def test_jobs_of_mlflow_run_where_the_user_wants_them(monkeypatch: pytest.MonkeyPatch, tracking_root: Path) -> None:
    assert mlflow_service(5000).environment[JOBS] == "false"
    monkeypatch.setenv(JOBS, "true")
    assert mlflow_service(5000).environment[JOBS] == "true"
