"""Watcher that restarts Prefect's temporary server if it ends while a flow needs it.

The server restarts on the same port with the same database. Prefect's clients retry a call for a minute, so most runs
continue unchanged. A client that has not reached the server before fails at once; its flow is then run again and
resumes.
"""

import threading
import time
from types import TracebackType
from typing import Self

from shunter.flows.command.temporary_server import TemporaryServer
from shunter.flows.command.terminal import say

POLL_SECONDS = 0.5
MOST_STARTS = 5  # largest number of restarts; a server that ends more often has a permanent fault
PATIENCE_SECONDS = 120.0  # longest wait for the server's start on a busy machine


class ServerWatch:
    """Watcher of the temporary server for the duration of a `with` block.

    Args:
        server: Server that this command has started or shares with other commands; None for a server that the user has
            configured.
    """

    def __init__(self, server: TemporaryServer | None) -> None:
        self._server, self._starts, self._noticed = server, 0, 0
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="server-watch", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread that watches the server."""
        if self._server is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the thread, so that the server is no longer restarted."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def is_back(self) -> bool:
        """Return True if the server was restarted since the last call and answers again; wait until it answers."""
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
        """Restart the server if its process has ended."""
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
