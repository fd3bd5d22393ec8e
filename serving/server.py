"""HTTP server of a model, which completes the requests in progress when it is stopped."""

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
from shunter.serving.metrics import Metrics
from shunter.serving.model_updater import ModelUpdater
from shunter.serving.request import ServeRequest
from shunter.tracking.registry.versions import only_model

FEWEST_CONNECTIONS = 16  # number of connections if the limit of open files is very low
BACKLOG = 128  # number of connections that are accepted at a time
QUEUE = 4_096  # number of connections that the kernel queues until they are accepted
OTHER_FILES = 96  # number of file descriptors of the model, the store and the log
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ScoreServer:
    """HTTP server of a model, which runs until SIGTERM, Ctrl-C or `stop`, and answers all requests received before.

    Args:
        request: Model to serve, and its options.
        host: Address to listen on.
        names: Host names that clients may use for the server.
        token: Token that clients must send; None if no token is needed.

    Attributes:
        updater: Updater that holds the served model.
        port: Port of the server, which is known once the server runs.
    """

    def __init__(self, request: ServeRequest, host: str, names: Collection[str], token: str | None = None) -> None:
        self._request, self._host, self._names, self._token = request, host, names, token
        self._server: uvicorn.Server | None = None
        self._metrics = Metrics()
        self.port = request.port
        self.updater: ModelUpdater

    def run(self, on_ready: Callable[[], None]) -> None:
        """Load the model, listen and answer; return when the server is stopped.

        Args:
            on_ready: Called once the server answers.

        Raises:
            RequestError: The model does not exist, or the port is in use.
            TrackingError: The signature of the model is wrong, or the store fails.
        """
        with _listening(self._host, self.port) as listener:
            self.port = listener.getsockname()[1]
            request = self._request
            self.updater = ModelUpdater(
                request.model or only_model(),
                self._metrics,
                request.items,
                request.increments,
                request.memory_bytes,
                index=request.index,
            )
            batcher = Batcher(self.updater.current, self._request.batching, self._metrics)
            self._server = _Server(self._config(batcher), on_ready)
            self.updater.follow(self._request.follow_seconds)
            try:
                self._server.run(sockets=[listener])
            finally:
                self.updater.close()
                batcher.close()

    def stop(self) -> None:
        """Stop the server as SIGTERM does; may be called from any thread."""
        if self._server is not None:
            self._server.should_exit = True

    def _config(self, batcher: Batcher) -> uvicorn.Config:
        app = Endpoints(self.updater, batcher, self._metrics, self._request.bounds).app()
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
            timeout_graceful_shutdown=round(2 * seconds)
            + 1,  # after this time every request has an answer, possibly 504
        )


class _Server(uvicorn.Server):
    """Uvicorn server that calls `on_ready` once it listens, and shuts down gracefully on a signal."""

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

        if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
            yield
            return
        before = {number: signal.signal(number, stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _most_connections() -> int:
    """Return the number of connections that the limit of open files allows; with more, asyncio logs endless errors."""
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
    # asyncio disables Nagle's algorithm only if the protocol is given by its number. Nagle's algorithm would delay the
    # rest of an answer by 40 ms, until the client acknowledges the first packet.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise RequestError(
                f"The server cannot listen on port {port} of {host} ({error.strerror}): stop the program "
                "that uses the port, or choose another with --port."
            ) from None
        yield listener
