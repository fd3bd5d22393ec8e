"""Proxies of the environment: the servers of this machine are reached without them, and waiting for a server ends."""

import http.server
import os
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import requests

from shunter.errors import ServerTimeoutError
from shunter.flows.command import services
from shunter.flows.command.environment import keep_loopback_direct
from shunter.flows.command.services import Service, free_port, wait_until_ready
from shunter.operation.servers import running
from tests.faults.household import SHUNTER

DEAD = "http://127.0.0.1:9"
SOCKS = "socks5://127.0.0.1:9"
NAMES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
SERVER = "import http.server, sys; http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]))"
BUSY = "while True: pass"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*NAMES, "NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")  # so that what the test sets is taken back
        monkeypatch.delenv(name)
    urllib.request.install_opener(None)  # urllib keeps the proxies of its first request
    yield
    urllib.request.install_opener(None)


@pytest.fixture
def local() -> Iterator[str]:
    """Address of a server of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("proxy", [DEAD, SOCKS])
@pytest.mark.parametrize("name", NAMES)
def test_every_client_reaches_loopback_directly(
    name: str, proxy: str, local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, proxy)
    keep_loopback_direct()
    assert os.environ[name] == proxy  # other machines are still reached through it
    for host in ("127.0.0.1", "localhost"):
        address = local.replace("127.0.0.1", host)
        assert httpx.get(address).status_code == 200
        assert requests.get(address, timeout=60).status_code == 200
        with urllib.request.urlopen(address) as answer:
            assert answer.status == 200


def test_hosts_of_the_user_stay_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", DEAD)
    monkeypatch.setenv("NO_PROXY", "own.example, 10.0.0.0/8")
    keep_loopback_direct()
    hosts = os.environ["NO_PROXY"].split(",")
    assert {"own.example", "10.0.0.0/8", "127.0.0.1", "localhost", "::1"} <= set(hosts)
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"]
    keep_loopback_direct()
    assert os.environ["NO_PROXY"].split(",") == hosts


def test_started_server_is_reached_past_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", DEAD)
    port = free_port()
    service = Service(name="Little", command=("-c", SERVER, str(port)), environment={}, port=port, health_path="/")
    with running(service) as process:
        wait_until_ready(service, process)
        assert httpx.get(service.url, trust_env=False).status_code == 200


def test_waiting_for_a_busy_server_ends_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "PATIENCE_SECONDS", 1)
    busy = Service(name="Busy", command=("-c", BUSY), environment={}, port=free_port(), health_path="/")
    with running(busy) as process, pytest.raises(ServerTimeoutError) as caught:
        wait_until_ready(busy, process)
    assert (caught.value.name, caught.value.url, caught.value.waited_seconds) == ("Busy", busy.url, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "proxies", [{"HTTP_PROXY": DEAD, "HTTPS_PROXY": DEAD}, pytest.param({"ALL_PROXY": SOCKS}, marks=pytest.mark.long)]
)
def test_command_with_a_server_works_behind_a_dead_proxy(
    proxies: dict[str, str], tmp_path: Path, add_profiles: Callable[[Path], Path]
) -> None:
    train = ("train", "--data", "synthetic:2000", "--dry-run")
    environment = {**os.environ, **proxies, "SHUNTER_HOME": str(add_profiles(tmp_path / "home"))}
    done = subprocess.run([SHUNTER, *train], env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
