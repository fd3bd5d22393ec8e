"""HTTP connections with limits: idle connections are closed, and cannot keep active clients from connecting."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 1_000  # beyond this number uvicorn answers 503; each connection needs a file descriptor
ADDRESS_SHARE = 0.75  # largest share of the connections for one address
TOLD_CONNECTIONS = 32  # number of connections beyond the limit that get a 503 answer; further ones are closed
CLOSED_AT_ONCE = 8  # one in this many unfinished connections is closed at a time, so that a flood costs little
HEAD_SECONDS = 5.0  # time limit for the whole head of the first request


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 protocol that closes connections that are idle for too long or that block others.

    If an address or the server has too many connections, the oldest connections with an incomplete request are closed.
    If all requests are complete, an idle connection is closed.
    """

    _deadline: asyncio.TimerHandle | None = None
    _waits_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Close other connections if there are too many, and start the timeout of the first request."""
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        address = self.client and self.client[0]
        if not self._has_room([one for one in self._others() if (one.client and one.client[0]) == address]):
            self.transport.abort()
            return
        self._wait(min(HEAD_SECONDS, self.timeout_keep_alive))

    def data_received(self, data: bytes) -> None:
        """Stop the timeout once the head of a request has arrived; the body has a separate time limit."""
        super().data_received(data)
        if self._is_idle:
            self._wait(self.timeout_keep_alive)
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def on_response_complete(self) -> None:
        """Start the timeout of the next request."""
        self._waits_since = self.loop.time()
        super().on_response_complete()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _is_unfinished(self) -> bool:
        """Return True before the head of the first request has arrived, and while the body of a request arrives."""
        return self.cycle is None or (self.cycle.more_body and not self.cycle.response_complete)

    def _others(self) -> "list[ImpatientProtocol]":
        return [one for one in cast("Iterable[ImpatientProtocol]", self.connections) if one is not self]

    def _has_room(self, of_address: "list[ImpatientProtocol]") -> bool:
        """Close other connections if there are too many, and return True if this connection may stay."""
        most = MOST_CONNECTIONS if self.limit_concurrency is None else self.limit_concurrency
        if len(of_address) >= int(ADDRESS_SHARE * most):
            return _close_some(of_address)
        if len(self.connections) >= most:
            return _close_some(self._others()) or len(self.connections) <= most + TOLD_CONNECTIONS
        return True

    def _wait(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._deadline = None
        if self._is_idle:
            self.transport.close()


def _close_some(connections: list[ImpatientProtocol]) -> bool:
    """Close the oldest connections with an incomplete request, else an idle one; return False if all are busy."""
    unfinished = [one for one in connections if one._is_unfinished]
    idle = unfinished or [one for one in connections if one._is_idle]
    oldest = sorted(idle, key=lambda one: one._waits_since)[: max(len(unfinished) // CLOSED_AT_ONCE, 1)]
    for one in oldest:
        one.connections.discard(one)  # not counted any more, although the connection ends in the loop's next iteration
        one.transport.abort()
    return bool(oldest)
