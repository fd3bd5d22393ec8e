"""Bad requests to `shunter serve`, with good clients beside them, none of which may lose a request.

Bodies that decode to far more than they are, headers of a quarter of a million columns, values without end, and
connections in thousands that ask nothing or stop halfway. Good clients ask for a score all the while, each request by a
connection of its own, from the same address as the bad ones.
"""

import contextlib
import http.client
import io
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.faults.command import MODEL, Started

REQUESTS = 100
GOOD_CLIENTS = 4
PATIENCE_SECONDS = 60.0
HELD_SECONDS = 2.0  # for which connections that ask nothing stay open
SILENT, STALLED = 1_200, 300  # connections at a time
JSON, CSV, PARQUET = "application/json", "text/csv", "application/vnd.apache.parquet"
HEAD = b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


@dataclass(frozen=True)
class BadRequest:
    """One bad request.

    Attributes:
        what: Its kind.
        came: Status of the answer, or how the connections ended.
        good_requests: Requests of good clients meanwhile.
        good_requests_lost: Those without a score.
        slowest_ping_seconds: Longest time that the server took for `/ping` meanwhile.
        server_peak_mib: Most memory that the server has taken until then.
    """

    what: str
    came: str
    good_requests: int
    good_requests_lost: int
    slowest_ping_seconds: float
    server_peak_mib: float


def post(port: int, body: bytes, kind: str, path: str = "/invocations") -> str:
    """Send a body, and return the status of the answer."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)) as connection:
        try:
            connection.request("POST", path, body, {"Content-Type": kind})
            return str(connection.getresponse().status)
        except OSError:  # refused before all of it was sent
            return "closed"


def _parquet(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


@cache
def prefixes() -> bytes:
    """Return texts with a common beginning, which the file holds once: two kilobytes that come to 100 MB."""
    values = ["x" * 100_000 + str(row) for row in range(1_000)]
    return _parquet(
        pa.table({"a": values}), use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"}, compression="zstd"
    )


def liar() -> bytes:
    """Return a few kilobytes that come to 100 MB, with a footer that says 0."""
    file = _parquet(
        pa.table({"a": pa.array([bytes(100_000)] * 1_000, pa.binary(100_000))}),
        use_dictionary=False,
        compression="zstd",
    )
    group = pq.ParquetFile(io.BytesIO(file)).metadata.row_group(0)
    footer = -8 - int.from_bytes(file[-8:-4], "little")
    told = file[footer:]
    for size in {group.total_byte_size, group.column(0).total_uncompressed_size}:
        told = told.replace(_varint(2 * size), b"\x80" * (len(_varint(2 * size)) - 1) + b"\x00")
    assert told != file[footer:]
    return file[:footer] + told


def _varint(value: int) -> bytes:
    """Encode a number as Thrift does."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def zeros() -> bytes:
    """Return a thousand rows of lists, a few kilobytes that come to 80 MB."""
    values = pa.array(np.zeros(20_000_000, np.int32))
    return _parquet(pa.table({"a": pa.FixedSizeListArray.from_arrays(values, 20_000)}), compression="zstd")


def _hold(port: int, count: int, sent: bytes) -> str:
    """Open connections, send something incomplete by each, and close them after a while."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            with contextlib.suppress(OSError):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS))
                client.sendall(sent)
        time.sleep(HELD_SECONDS)
    return "held"


BODIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "Parquet of texts with common prefixes": (prefixes, PARQUET),
    "Parquet whose footer says that it is small": (liar, PARQUET),
    "Parquet of zeros": (zeros, PARQUET),
    "Parquet whose footer is said to be 4 GiB": (lambda: b"PAR1" + b"\xff" * 4 + b"PAR1", PARQUET),
    "CSV of 262,000 columns": (lambda: ",".join(f"c{one}" for one in range(262_000)).encode() + b"\n1\n", CSV),
    "CSV of two million rows": (lambda: b"a\n" + b"1\n" * 2_000_000, CSV),
    "JSON of five million objects": (lambda: b'{"inputs": [' + b"{}," * 5_000_000 + b"{}]}", JSON),
    "JSON nested a million times": (lambda: b"[" * 1_000_000, JSON),
    "JSON of rows that share no column": (
        lambda: json.dumps({"inputs": [{f"c{row}": 1} for row in range(9_000)]}).encode(),
        JSON,
    ),
    "a body of 64 MiB": (lambda: b" " * (64 << 20), JSON),
    "noise": (lambda: bytes(range(256)) * 4_000, "x" * 100),
}
ATTACKS: dict[str, Callable[[int], str]] = {
    **{what: lambda port, one=one: post(port, one[0](), one[1]) for what, one in BODIES.items()},
    "1,200 connections that ask nothing": lambda port: _hold(port, SILENT, b""),
    "1,200 connections with half a head": lambda port: _hold(port, SILENT, HEAD[:40]),
    "300 connections with half a body": lambda port: _hold(port, STALLED, HEAD + b'{"inputs"'),
}


class GoodClients:
    """Clients that ask for a score again and again, each request by a new connection.

    Args:
        port: Port of the server.
        row: Row that is scored, by columns.

    Attributes:
        made: Requests so far.
        lost: Those without a score.
        slowest_ping_seconds: Longest time of an answer to `/ping` since it was last set to 0.
    """

    def __init__(self, port: int, row: Mapping[str, object]) -> None:
        self._port, self._body = port, json.dumps({"inputs": [dict(row)]}).encode()
        self._is_over, self._lock = threading.Event(), threading.Lock()
        self.made = self.lost = 0
        self.slowest_ping_seconds = 0.0

    @contextlib.contextmanager
    def asking(self) -> Iterator["GoodClients"]:
        """Ask for the length of the block."""
        with ThreadPoolExecutor(GOOD_CLIENTS + 1) as lanes:
            asked = [lanes.submit(self._ask) for _ in range(GOOD_CLIENTS)] + [lanes.submit(self._ping)]
            try:
                yield self
            finally:
                self._is_over.set()
            for one in asked:
                one.result()

    def wait(self) -> None:
        """Wait until some more requests have been made."""
        before = self.made
        while self.made < before + 2 * GOOD_CLIENTS:
            time.sleep(0.01)

    def _ask(self) -> None:
        while not self._is_over.is_set():
            is_lost = post(self._port, self._body, JSON) != "200"
            with self._lock:
                self.made, self.lost = self.made + 1, self.lost + is_lost

    def _ping(self) -> None:
        while not self._is_over.wait(0.02):
            begin = time.perf_counter()
            with contextlib.closing(
                http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_SECONDS)
            ) as one:
                one.request("GET", "/ping")
                one.getresponse().read()
            self.slowest_ping_seconds = max(self.slowest_ping_seconds, time.perf_counter() - begin)


def attack(what: str, port: int, good: GoodClients, process: int) -> BadRequest:
    """Make one bad request while good clients ask."""
    good.slowest_ping_seconds, made, lost = 0.0, good.made, good.lost
    came = ATTACKS[what](port)
    good.wait()
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert peak is not None
    return BadRequest(
        what, came, good.made - made, good.lost - lost, round(good.slowest_ping_seconds, 3), int(peak[1]) / 1024
    )


def bad_requests(home: Path, count: int) -> Iterator[BadRequest]:
    """Serve the champion of a home, and make bad requests of all kinds in turn.

    Args:
        home: Home with a registered model.
        count: How many bad requests.

    Raises:
        RuntimeError: The server does not answer.
    """
    server = Started(("serve", "--port", "0"), home, log="serve.log")
    try:
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", server.log.read_text())):
            if not server.is_running or server.seconds > PATIENCE_SECONDS:
                raise RuntimeError(f"The server does not answer:\n{server.log.read_text()}")
            time.sleep(0.05)
        port = int(found[1])
        with GoodClients(port, dict.fromkeys(_columns(port))).asking() as good:
            for number in range(count):
                yield attack(list(ATTACKS)[number % len(ATTACKS)], port, good, server.process.pid)
    finally:
        server.process.send_signal(signal.SIGINT)
        server.process.wait()


def _columns(port: int) -> list[str]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)) as connection:
        connection.request("GET", f"/v2/models/{MODEL}")
        return [one["name"] for one in json.load(connection.getresponse())["inputs"]]
