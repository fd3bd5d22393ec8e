"""Someone is told that a run has failed, and no secret on the way."""

import json
import logging
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings
from prefect.states import Crashed, Failed

from shunter.tasks.flow_runs import notify, notify_about

RUN = FlowRun(flow_id=uuid.uuid4(), name="train-ml-100k")


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Address of a server, and what is posted to it."""
    received: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/json"
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing on the terminal."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token-s3cret", received
    server.shutdown()
    server.server_close()


def test_failure_is_posted_in_one_sentence_without_the_passwords_of_its_message(
    webhook: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, received = webhook
    monkeypatch.setenv("SHUNTER_NOTIFY_WEBHOOK", address)
    notify_about("train", RUN, Failed(message="The store postgresql://me:hunter2@db/mlflow failed."))
    assert received[0]["text"] == ("train train-ml-100k ended as Failed: The store postgresql://***@db/mlflow failed.")
    assert received[0]["flow_run_id"] == str(RUN.id)
    assert "hunter2" not in json.dumps(received)


def test_command_gets_the_same_on_its_input_and_no_shell_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told; touch escaped"
    monkeypatch.setenv("SHUNTER_NOTIFY_COMMAND", f"tee '{told}'")
    notify_about("nightly", RUN, Crashed(message="$(touch escaped)"))
    assert json.loads(told.read_text())["reason"] == "$(touch escaped)"
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == [told.name]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SHUNTER_NOTIFY_WEBHOOK", "http://127.0.0.1:9/token-s3cret"),
        ("SHUNTER_NOTIFY_WEBHOOK", "file:///etc/token-s3cret"),
        ("SHUNTER_NOTIFY_COMMAND", "false --token s3cret"),
        ("SHUNTER_NOTIFY_COMMAND", "no-such-program s3cret"),
        ("SHUNTER_NOTIFY_COMMAND", "an 'open quote s3cret"),
    ],
)
def test_what_goes_wrong_is_logged_without_the_secret(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(variable, value)
    logger = logging.getLogger("prefect.flow_runs")
    logger.addHandler(caplog.handler)
    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: False}):
        notify_about("train", RUN, Failed(message="no reason"))
    logger.removeHandler(caplog.handler)
    assert variable in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.slow
def test_flows_tell_of_their_failure_and_of_nothing_else(
    prefect_server: None, webhook: tuple[str, list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect import flow

    @flow(on_failure=[notify], on_crashed=[notify])
    def sometimes(fails: bool) -> str:
        if fails:
            raise ValueError("of the user")
        return "well"

    monkeypatch.setenv("SHUNTER_NOTIFY_WEBHOOK", webhook[0])
    sometimes(fails=False)
    with pytest.raises(ValueError, match="of the user"):
        sometimes(fails=True)
    assert [one["flow"] for one in webhook[1]] == ["sometimes"]
    assert "of the user" in webhook[1][0]["text"]
