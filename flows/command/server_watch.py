"""Prefect's temporary server, started again where it ends while a flow needs it.

It comes back on the same port and over the same database. Prefect's clients try a call for a minute, so most runs do
not notice; a call of a client that had not reached the server before fails at once, and its flow is run again, which
goes on where it stopped.
"""

import threading
import time
from types import TracebackType
from typing import Self

from shunter.flows.command.temporary_server import TemporaryServer
from shunter.flows.command.terminal import say

POLL_SECONDS = 0.5
MOST_STARTS = 5  # a server that ends again and again has a reason to
PATIENCE_SECONDS = 120.0  # with its start, on a busy machine


class ServerWatch:
    """Watches the temporary server for the length of a block.

    Args:
        server: Server that this command has started, or shares with others; None for a server that the user names.
    """

    def __init__(self, server: TemporaryServer | None) -> None:
        self._server, self._starts, self._noticed = server, 0, 0
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="server-watch", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        if self._server is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let the server end from now on."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def is_back(self) -> bool:
        """Whether the server has ended since the last question, and answers again; waits until it does."""
        self._revive()
        if self._noticed == self._starts:
            return False
        self._noticed = self._starts
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self._answers():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _watch(self) -> None:
        while not self._is_over.wait(POLL_SECONDS):
            self._revive()

    def _revive(self) -> None:
        """Start the server again where its process has ended."""
        with self._lock:
            if self._server is None or self._server.is_running or self._starts == MOST_STARTS:
                return
            self._starts += 1
            say(self._server.ended)
            self._server.start()

    def _answers(self) -> bool:
        import httpx

        assert self._server is not None
        try:
            return httpx.get(f"{self._server.api_url}/health", timeout=5.0).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False
