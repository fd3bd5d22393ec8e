"""The server as clients meet it: a champion that changes, clients that are slow or go away, and its end."""

import concurrent.futures
import contextlib
import json
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import httpx
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE

from shunter.errors import TrackingError
from shunter.serving.server import ScoreServer, _listening, _most_connections
from shunter.tracking.registry.models import load_champion
from shunter.tracking.registry.versions import roll_back
from tests.serving.conftest import Serving

PATIENCE_SECONDS = 120


def body_of(rows: pd.DataFrame) -> dict[str, Any]:
    return {"dataframe_records": json.loads(str(rows.to_json(orient="records")))}


def test_the_second_part_of_an_answer_does_not_wait_for_the_client() -> None:
    """Of a socket whose protocol has no number asyncio leaves Nagle's algorithm on."""
    with _listening("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.slow
def test_a_new_champion_takes_over_without_a_lost_request(
    serving: Serving, rows: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients ask all the while; each answer is that of the one version or the other, as a whole."""
    some = rows.head(5)
    scores = {2: np.asarray(load_champion("shop").predict(some)).tolist()}
    is_over = threading.Event()
    with serving(follow_seconds=0.05) as server, concurrent.futures.ThreadPoolExecutor(3) as pool:

        def ask() -> list[list[float]]:
            found: list[list[float]] = []
            with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE_SECONDS) as client:
                while not is_over.is_set():
                    answer = client.post("/invocations", json=body_of(some))
                    assert answer.status_code == 200, answer.text
                    found.append(answer.json()["predictions"])
            return found

        asking = [pool.submit(ask) for _ in range(3)]
        try:
            roll_back("shop", 1)
            scores[1] = np.asarray(load_champion("shop").predict(some)).tolist()
            wait_for(lambda: server.updater.current().version == "1")
            wait_for(lambda: "shop/1 takes over" in caplog.text)
            last = httpx.post(f"http://127.0.0.1:{server.port}/invocations", json=body_of(some))
        finally:
            is_over.set()
        answers = [one for each in asking for one in each.result()]
    assert scores[1] != scores[2]
    assert last.json()["predictions"] == scores[1]
    assert all(one in scores.values() for one in answers)
    assert scores[2] in answers


def test_a_champion_that_cannot_be_loaded_is_told_once_and_the_old_one_goes_on(
    serving: Serving, home: Path, rows: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(follow_seconds=0) as server:
        roll_back("shop", 1)
        damaged = [path for path in home.rglob("model.safetensors") if is_of_version_1(path, home)]
        kept = {path: path.read_bytes() for path in damaged}
        assert len(kept) == 1
        try:
            for path in damaged:
                path.write_bytes(b"damaged")
            with caplog.at_level(logging.WARNING):
                assert not server.updater.check_for_update()
                assert not server.updater.check_for_update()
        finally:
            for path, content in kept.items():
                path.write_bytes(content)
        assert caplog.text.count("shop/2 stays in use: ") == 1
        answer = httpx.post(f"http://127.0.0.1:{server.port}/invocations", json=body_of(rows.head(2)))
        assert answer.status_code == 200


def test_a_store_that_is_away_refuses_no_version(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(named: str, increments: object = ()) -> NoReturn:
        raise TrackingError("The store failed.") from MlflowException("away", TEMPORARILY_UNAVAILABLE)

    with serving(follow_seconds=0) as server:
        other = 3 - int(server.updater.current().version)
        roll_back("shop", other)
        with monkeypatch.context() as patched:
            patched.setattr(server.updater, "_load", away)
            assert not server.updater.check_for_update()
        assert server.updater.check_for_update()
        assert server.updater.current().version == str(other)


def is_of_version_1(weights: Path, home: Path) -> bool:
    from shunter.tracking.registry.versions import version_by_number

    return f"run_id: {version_by_number('shop', 1).run_id}" in (weights.parents[3] / "MLmodel").read_text()


HEAD = b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", b""),
        (b"POST /invoc", b""),
        (HEAD, b"408"),
        (HEAD + b'{"inputs"', b"The request body did not arrive within 0.6 seconds: send it without delay"),
    ],
    ids=["nothing", "half a head", "no body", "half a body"],
)
def test_a_slow_client_is_sent_away(serving: Serving, rows: pd.DataFrame, sent: bytes, told: bytes) -> None:
    with serving(request_seconds=0.6, follow_seconds=0) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as client:
            client.sendall(sent)
            assert told in read_all(client)  # and then it is closed
        goes_on(server)


def test_who_goes_away_or_speaks_nonsense_does_no_harm(serving: Serving) -> None:
    with serving(follow_seconds=0) as server:
        for sent in (
            b"",
            b"GET",
            HEAD,
            HEAD + b"{",
            b"\x16\x03\x01 nonsense\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: " + b"a" * 99_999,
        ):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(sent)
        goes_on(server)
        chunked = httpx.post(
            f"http://127.0.0.1:{server.port}/invocations",
            content=(b" " * 1_000_000 for _ in range(40)),
            headers={"content-type": "application/json"},
        )
        assert chunked.status_code == 413
        goes_on(server)


def test_a_connection_that_asks_nothing_makes_room_for_one_that_asks(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.serving.server.MOST_CONNECTIONS", 8)
    with serving(follow_seconds=0) as server, contextlib.ExitStack() as stack:
        address = f"http://127.0.0.1:{server.port}"
        for sent in (b"", b"POST /invoc", HEAD, HEAD + b"{"):
            clients = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(12)]
            for client in clients:
                client.settimeout(PATIENCE_SECONDS)
                client.sendall(sent)
            with httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as good:
                assert [good.get("/version").status_code for _ in range(3)] == [200] * 3
            assert {ended(client) for client in clients[:5]} == {True}


def test_a_connection_beyond_those_that_are_answered_is_closed(
    serving: Serving, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.serving.server.MOST_CONNECTIONS", 4)  # three of one address
    with (
        serving(follow_seconds=0, batch_milliseconds=2_000) as server,
        concurrent.futures.ThreadPoolExecutor(3) as pool,
    ):
        address = f"http://127.0.0.1:{server.port}"
        asked = [
            pool.submit(httpx.post, f"{address}/invocations", json=body_of(rows.head(1)), timeout=PATIENCE_SECONDS)
            for _ in range(3)
        ]
        wait_for(lambda: server._metrics.waiting_rows._value.get() == 3)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{address}/version")
        assert [one.result().status_code for one in asked] == [200] * 3
        wait_for(lambda: httpx.get(f"{address}/version").status_code == 200)


def ended(client: socket.socket) -> bool:
    try:
        while client.recv(1_024):  # a slow server says first that it waited too long
            pass
        return True
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("few", "most", "kept", "expected"),
    [(64, 128, 128, 16), (600, 600, 600, 344), (1_024, -1, 1_256, 1_000), (-1, -1, None, 1_000)],
)
def test_as_many_connections_as_there_are_files_for(
    monkeypatch: pytest.MonkeyPatch, few: int, most: int, kept: int | None, expected: int
) -> None:
    limits: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (few, most))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    assert _most_connections() == expected
    assert limits in ([], [(kept, most)])


def goes_on(server: ScoreServer) -> None:
    assert httpx.get(f"http://127.0.0.1:{server.port}/version", timeout=PATIENCE_SECONDS).status_code == 200


@pytest.mark.slow
def test_told_to_end_the_command_answers_what_has_come(home: Path, rows: pd.DataFrame) -> None:
    """The request waits for others, so that it is in flight when the signal comes."""
    program = [sys.executable, "-m", "shunter.flows.cli", "serve", "--model", "shop", "--port", "0"]
    program += ["--batch-milliseconds", "3000"]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"shop/2 answers at (http://127.0.0.1:\d+)/invocations until Ctrl-C\.\n", line)
            assert found, line
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                asked = pool.submit(
                    httpx.post, f"{found[1]}/invocations", json=body_of(rows.head(3)), timeout=PATIENCE_SECONDS
                )
                wait_for(lambda: "shunter_waiting_rows 3.0" in httpx.get(f"{found[1]}/metrics").text)
                process.send_signal(signal.SIGTERM)
                answer = asked.result()
            assert answer.json()["predictions"] == np.asarray(load_champion("shop").predict(rows.head(3))).tolist()
            rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, rest, errors) == (0, "Stopped: every received request was answered.\n", "")


def read_all(client: socket.socket) -> bytes:
    parts: list[bytes] = []
    while part := client.recv(65_536):
        parts.append(part)
    return b"".join(parts)


def wait_for(condition: Any) -> None:
    latest = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < latest
        time.sleep(0.02)
