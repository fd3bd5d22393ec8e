"""A proxy before MLflow's server that misbehaves: it refuses, stalls, errs, repeats, or loses answers."""

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

Answer = tuple[int, list[tuple[str, str]], bytes]
READS = ("/search", "/get", "/list", "/health", "/version")
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "server", "date", "keep-alive"}
FULL_DISK = b'{"error_code": "INTERNAL_ERROR", "message": "(sqlite3.OperationalError) database or disk is full"}'
SHORT_OF_WORK = b"<html><body>502 Bad Gateway</body></html>"


@dataclass
class Call:
    """A request on its way.

    Attributes:
        forward: Lets the server answer it.
        is_write: Whether it would change something there.
        number: Its place among all requests, from 0.
        seconds: Since the first request.
    """

    forward: Callable[[], Answer]
    is_write: bool
    number: int
    seconds: float


Fault = Callable[[Call, Random], Answer | None]  # None closes the connection without an answer


class Proxy:
    """Passes requests on to a server of this machine, unless its fault has it otherwise.

    Args:
        port: Port of the server on loopback.
        seed: Of what the fault draws.

    Attributes:
        fault: What is done with a request; None passes it on.
        spoilt: Requests that were not simply passed on.
    """

    def __init__(self, port: int, seed: int) -> None:
        self.fault: Fault | None = None
        self.spoilt = self.calls = 0
        self._target, self._random, self._lock = port, Random(seed), threading.Lock()
        self._began: float | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        """What a client is told."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator["Proxy"]:
        """Answer for the length of the block."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        """Pass a request on, or do to it what the fault does."""
        with self._lock:
            self._began = self._began or time.monotonic()
            number, self.calls = self.calls, self.calls + 1
        passed: list[Answer] = []

        def forward() -> Answer:
            connection = http.client.HTTPConnection("127.0.0.1", self._target, timeout=120)
            # Under its own name: the server answers to no other.
            connection.request(method, path, body, {**headers, "Host": f"127.0.0.1:{self._target}"})
            found = connection.getresponse()
            passed.append((found.status, found.getheaders(), found.read()))
            connection.close()
            return passed[-1]

        is_write = method != "GET" and not any(part in path for part in READS)
        call = Call(forward, is_write, number, time.monotonic() - self._began)
        answer = self.fault(call, self._random) if self.fault else forward()
        self.spoilt += len(passed) != 1 or answer is not passed[0]
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:  # whoever asked has hung up
                    self.close_connection = True

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = proxy.answer(self.command, self.path, dict(self.headers.items()), body)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, content = answer
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on  # noqa: N815 - names of the library

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: the benchmark prints its own lines."""

        return Handler


def stopped(call: Call, random: Random) -> Answer | None:
    """Nobody answers at all, until nothing is left but to register."""
    return None


def dies_in_the_middle(call: Call, random: Random) -> Answer | None:
    """It answers at first, and then no more, until nothing is left but to register."""
    return call.forward() if call.number < 40 else None


def stalls(call: Call, random: Random) -> Answer | None:
    """From the tenth second on every answer takes a minute, for a minute."""
    if 10 <= call.seconds <= 70:
        time.sleep(60)
    return call.forward()


def errs(call: Call, random: Random) -> Answer | None:
    """Of the requests 20 % are answered by an error, and do nothing."""
    return (503, [], SHORT_OF_WORK) if random.random() < 0.2 else call.forward()


def fails_to_write(call: Call, random: Random) -> Answer | None:
    """Reads answer, and all that would change something fails, until nothing is left but to register."""
    return (503, [], SHORT_OF_WORK) if call.is_write else call.forward()


def has_a_full_disk(call: Call, random: Random) -> Answer | None:
    """The first hundred requests that would write find its disk full."""
    return (
        (500, [("Content-Type", "application/json")], FULL_DISK)
        if call.is_write and call.number < 100
        else call.forward()
    )


def loses_answers(call: Call, random: Random) -> Answer | None:
    """A fifth of what it has done it does not say."""
    answer = call.forward()
    return None if random.random() < 0.2 else answer


def does_twice(call: Call, random: Random) -> Answer | None:
    """A fifth of the requests reach it twice, and the second answer is the one that is heard."""
    answer = call.forward()
    return call.forward() if random.random() < 0.2 else answer


def is_out_of_order(call: Call, random: Random) -> Answer | None:
    """Each request waits up to 0.3 seconds, so that those of several threads overtake each other."""
    time.sleep(0.3 * random.random())
    return call.forward()


def talks_nonsense(call: Call, random: Random) -> Answer | None:
    """A fifth of the answers is a page of somebody else's, said to be fine."""
    return (200, [("Content-Type", "text/html")], SHORT_OF_WORK) if random.random() < 0.2 else call.forward()


FAULTS: tuple[Fault, ...] = (
    *(errs, fails_to_write, loses_answers, does_twice, stopped, has_a_full_disk),
    *(dies_in_the_middle, talks_nonsense, is_out_of_order, stalls),
)
UNTIL_WAITED_FOR: tuple[Fault, ...] = (fails_to_write, stopped, dies_in_the_middle)
