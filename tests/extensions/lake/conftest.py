"""Servers of objects: an S3 server in a process of its own, and a web server that fails on request."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Thread
from typing import Any

import pytest

from tests.private_postgres import USER, private_postgres

pytest.importorskip("s3fs")
pytest.importorskip("moto")


@dataclass
class Faults:
    """Content of a web server, and what goes wrong there.

    Attributes:
        files: Content by path.
        errors: Share of the reads that end with status 500.
        cut: Share of the reads whose body is cut off.
        stalls: Number of reads that never answer.
        changes_after: Reads after which every file is another one; None for never.
        refuses: Whether every read is refused.
        has_ranges: Whether ranges are served.
        has_tags: Whether answers state an ETag.
        changed: Time of the last change that answers state; empty for none.
        reads: Reads so far.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    errors: float = 0.0
    cut: float = 0.0
    stalls: int = 0
    changes_after: int | None = None
    refuses: bool = False
    has_ranges: bool = True
    has_tags: bool = True
    changed: str = ""
    reads: int = 0
    address: str = ""
    random: Random = field(default_factory=lambda: Random(7))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, faults: Faults, *arguments: Any) -> None:
        self.faults = faults
        super().__init__(*arguments)

    def do_HEAD(self) -> None:
        self._answer(is_head=True)

    def do_GET(self) -> None:
        self._answer(is_head=False)

    def _answer(self, *, is_head: bool) -> None:
        faults = self.faults
        faults.reads += not is_head
        content = faults.files.get(self.path)
        if content is None or faults.refuses:
            return self._error(404 if content is None else 403)
        if not is_head and faults.stalls > 0:
            faults.stalls -= 1
            time.sleep(3)
            self.close_connection = True
            return None
        if faults.random.random() < faults.errors:
            return self._error(500)
        is_changed = faults.changes_after is not None and faults.reads > faults.changes_after
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if faults.has_ranges else None
        body = content[int(asked[1]) : int(asked[2]) + 1] if asked else content
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {asked[1]}-{asked[2]}/{len(content)}")
        if faults.has_ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        if faults.has_tags:
            self.send_header("ETag", f'"{hash(content)}{is_changed}"')
        if faults.changed:
            self.send_header("Last-Modified", faults.changed)
        self.end_headers()
        if not is_head and faults.random.random() < faults.cut:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif not is_head:
            self.wfile.write(body)
        return None

    def _error(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """Yield the content and the faults of a web server on this machine."""
    monkeypatch.setattr("shunter.extensions.lake.objects._FIRST_WAIT_SECONDS", 0.001)
    faults = Faults()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, faults))
    faults.address = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    yield faults
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Yield the address of an S3 server, which runs in a process of its own."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    found = next(match for line in process.stderr if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
    Thread(target=process.stderr.read, daemon=True).start()  # the server's log must not fill the pipe
    yield found[0]
    process.terminate()
    process.wait()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a file system of an S3 server with an empty bucket `logs`, configured as users configure it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    import fsspec

    system = fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True)
    if system.exists("logs"):
        system.rm("logs", recursive=True)
    system.mkdir("logs")
    return system


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the address of a database of a private cluster."""
    monkeypatch.setenv("PGUSER", USER)
    with private_postgres() as address:
        yield address
