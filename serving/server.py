"""The server: it listens, answers until it is told to stop, and finishes what it has begun."""

import contextlib
import resource
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType

import uvicorn

from shunter.errors import RequestError
from shunter.serving.app import Endpoints
from shunter.serving.batcher import Batcher
from shunter.serving.connections import MOST_CONNECTIONS, TOLD_CONNECTIONS, ImpatientProtocol
from shunter.serving.guard import Guard
from shunter.serving.keeper import Keeper
from shunter.serving.metrics import Metrics
from shunter.serving.request import ServeRequest
from shunter.tracking.registry.versions import only_model

FEWEST_CONNECTIONS = 16  # where there are hardly any files
BACKLOG = 128  # connections that are taken at a time
QUEUE = 4_096  # connections that the kernel holds until they are taken
OTHER_FILES = 96  # of the model, the store and the log
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ScoreServer:
    """A model behind HTTP, until SIGTERM, Ctrl-C or `stop`; requests that have come by then are answered.

    Args:
        request: What to serve, and how.
        host: Address to listen on.
        names: Names by which clients may call it.
        token: What clients must know; None where all may ask.

    Attributes:
        keeper: Keeps the model that answers.
        port: Where it listens; known once it runs.
    """

    def __init__(self, request: ServeRequest, host: str, names: Collection[str], token: str | None = None) -> None:
        self._request, self._host, self._names, self._token = request, host, names, token
        self._server: uvicorn.Server | None = None
        self._metrics = Metrics()
        self.port = request.port
        self.keeper: Keeper

    def run(self, on_ready: Callable[[], None]) -> None:
        """Load the model, listen and answer; returns when it is stopped.

        Args:
            on_ready: Called once it answers.

        Raises:
            RequestError: There is no such model, or the port is taken.
            TrackingError: The model is not what was signed, or the store fails.
        """
        with _listening(self._host, self.port) as listener:
            self.port = listener.getsockname()[1]
            request = self._request
            self.keeper = Keeper(
                request.model or only_model(),
                self._metrics,
                request.items,
                request.increments,
                request.memory_bytes,
                index=request.index,
            )
            batcher = Batcher(self.keeper.current, self._request.batching, self._metrics)
            self._server = _Server(self._config(batcher), on_ready)
            self.keeper.follow(self._request.follow_seconds)
            try:
                self._server.run(sockets=[listener])
            finally:
                self.keeper.close()
                batcher.close()

    def stop(self) -> None:
        """Let it end as by SIGTERM, from any thread."""
        if self._server is not None:
            self._server.should_exit = True

    def _config(self, batcher: Batcher) -> uvicorn.Config:
        app = Endpoints(self.keeper, batcher, self._metrics, self._request.bounds).app()
        seconds = self._request.bounds.request_seconds
        return uvicorn.Config(
            Guard(app, self._names, self._token),
            http=ImpatientProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=_most_connections(),
            backlog=BACKLOG,
            timeout_keep_alive=max(round(seconds), 1),
            timeout_graceful_shutdown=round(2 * seconds) + 1,  # after which each has been answered, were it with 504
        )


class _Server(uvicorn.Server):
    """Tells when it listens, and ends by a signal as it ends otherwise."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(QUEUE)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            self.handle_exit(number, frame)

        if threading.current_thread() is not threading.main_thread():  # which alone takes signals
            yield
            return
        before = {number: signal.signal(number, stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _most_connections() -> int:
    """Connections for which there are files: without one asyncio could take none, and would say so without end."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MOST_CONNECTIONS + TOLD_CONNECTIONS + BACKLOG + OTHER_FILES
    if few != resource.RLIM_INFINITY and few < needed:
        few = needed if most == resource.RLIM_INFINITY else min(needed, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    if few == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(MOST_CONNECTIONS, max(few - (needed - MOST_CONNECTIONS), FEWEST_CONNECTIONS))


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol by its number: only then asyncio switches off Nagle's algorithm, by which the rest of an answer waits
    # 40 ms for the client's acknowledgement of its first part.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise RequestError(
                f"Port {port} of {host} cannot be listened on ({error.strerror}): stop what listens there, or choose "
                "another with --port."
            ) from None
        yield listener
