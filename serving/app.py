"""HTTP endpoints: MLflow's scoring protocol, the open inference protocol, health and metrics."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version as version_of
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import ClientDisconnect

from shunter.errors import CheckpointError, HardwareError, ShunterError, UnusableValuesError
from shunter.serving.answers import JSON, as_json, error_response, refusal
from shunter.serving.batcher import Batcher, Scored
from shunter.serving.errors import (
    BrokenError,
    BusyError,
    LateError,
    MediaTypeError,
    RefusedError,
    SlowClientError,
    TooLargeRequestError,
    UnknownError,
    UnusableRowsError,
)
from shunter.serving.guard import HEALTH
from shunter.serving.metrics import Metrics
from shunter.serving.model_updater import ModelUpdater
from shunter.serving.protocols import invocations, open_inference
from shunter.serving.request import ServingLimits
from shunter.serving.table import Table

SMALL_BYTES = 1 << 18  # JSON up to this size is parsed in the event loop; larger bodies would block other requests
MOST_LARGE_BYTES = 256 << 20  # largest sum of all larger bodies in memory
READERS = 2  # number of threads that parse larger bodies
_log = logging.getLogger(__name__)
Value = TypeVar("Value")
Endpoint = Callable[[Request], Awaitable[Response]]


class Endpoints:
    """HTTP endpoints of the server."""

    def __init__(self, updater: ModelUpdater, batcher: Batcher, metrics: Metrics, limits: ServingLimits) -> None:
        self._updater, self._batcher, self._metrics, self._limits = updater, batcher, metrics, limits
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        self._large_bytes, self._most_large_bytes = 0, max(MOST_LARGE_BYTES, int(limits.max_request_mib * (2 << 20)))

    def app(self) -> FastAPI:
        """Return the application, without FastAPI's own pages, which would load scripts from other servers."""
        app = FastAPI(title="Shunter", docs_url=None, redoc_url=None, openapi_url=None)
        model = "/v2/models/{name}"
        of_version = f"{model}/versions/{{version}}"
        routes: list[tuple[str, str, Endpoint]] = [
            ("POST", "/invocations", self.invocations),
            *(("GET", path, self.alive) for path in sorted(HEALTH)),
            ("GET", "/version", self.version),
            ("GET", "/metrics", self.metrics),
            ("GET", "/v2", self.server),
        ]
        for path in (model, of_version):
            routes += [
                ("GET", path, self.described),
                ("GET", f"{path}/ready", self.ready),
                ("POST", f"{path}/infer", self.infer),
            ]
        for method, path, endpoint in routes:
            app.router.add_route(path, self._answered(path, endpoint), methods=[method])
        app.add_exception_handler(404, _unknown)
        app.add_exception_handler(405, _unknown)
        return app

    async def invocations(self, request: Request) -> Response:
        """Answer a request in MLflow's scoring protocol."""
        kind = request.headers.get("content-type", "")
        rows = self._limits.max_request_rows
        is_json = kind.lower().startswith(JSON)
        table = await self._read(request, lambda body: invocations.read_table(body, kind, rows), is_json=is_json)
        scored = await self._scored(table)
        found = scored.answer
        content = invocations.answer(found.scores, scored.model.scorer.outputs, found.counts.by_kind())
        return Response(content, media_type=JSON)

    async def infer(self, request: Request) -> Response:
        """Answer an inference request in the open inference protocol."""
        model = self._named(request)
        if "inference-header-content-length" in request.headers:
            raise MediaTypeError("The binary extension is not supported: send the data as JSON.")
        rows = self._limits.max_request_rows
        table, asked = await self._read(
            request, lambda body: open_inference.read_table(body, rows, model.columns), is_json=True
        )
        scored = await self._scored(table)
        found, by = scored.answer, scored.model
        unusable = found.counts.by_kind()
        content = open_inference.answer(found.scores, by.scorer.outputs, asked, by.name, by.version, unusable=unusable)
        return Response(content, media_type=JSON)

    async def alive(self, request: Request) -> Response:
        """Answer a liveness check; the server answers only after the model is loaded."""
        if request.url.path.startswith("/v2"):
            return as_json({"live": True, "ready": True})
        return Response(b"\n", media_type=JSON)

    async def version(self, request: Request) -> Response:
        """Return the version of MLflow whose protocol the server implements."""
        return Response(version_of("mlflow"), media_type=JSON)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics of the server in Prometheus format."""
        return Response(self._metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def server(self, request: Request) -> Response:
        """Return the name, version and extensions of the server."""
        return as_json({"name": "shunter", "version": version_of("shunter"), "extensions": []})

    async def described(self, request: Request) -> Response:
        """Return the metadata of the served model."""
        model = self._named(request)
        return as_json(open_inference.described(model.name, model.version, model.kinds(), model.scorer.outputs))

    async def ready(self, request: Request) -> Response:
        """Answer that the model is ready; refuse an unknown name or version."""
        return as_json({"name": self._named(request).name, "ready": True})

    def _named(self, request: Request) -> Any:
        model = self._updater.current()
        name, version = request.path_params["name"], request.path_params.get("version", model.version)
        if name != model.name:
            raise UnknownError(f"The server has no model {name[:60]!r}: use {model.name}.")
        if version != model.version:
            raise UnknownError(f"The server has no version {version[:60]!r} of {name}: use {model.version}.")
        return model

    async def _read(self, request: Request, read: Callable[[bytes], Value], *, is_json: bool) -> Value:
        """Read and parse the body of a request; large bodies are parsed in a thread, to keep the event loop free."""
        with self._held_bytes() as reserve:
            body = await self._body(request, reserve)
            if is_json and len(body) <= SMALL_BYTES:
                return read(body)
            return await asyncio.get_running_loop().run_in_executor(self._readers, read, body)

    @contextlib.contextmanager
    def _held_bytes(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts the bytes of large bodies in memory, and raises `BusyError` above the limit."""
        counted = 0

        def reserve(length: int) -> None:
            nonlocal counted
            more = max(length - SMALL_BYTES - counted, 0)
            if self._large_bytes + more > self._most_large_bytes:
                raise BusyError("Too many large requests arrived at the same time: try again in a second.")
            counted, self._large_bytes = counted + more, self._large_bytes + more

        try:
            yield reserve
        finally:
            self._large_bytes -= counted

    async def _body(self, request: Request, reserve: Callable[[int], None]) -> bytes:
        """Receive the whole body within the limits of time and size; `reserve` counts the bytes received so far."""
        most = int(self._limits.max_request_mib * (1 << 20))
        if request.headers.get("content-encoding", "identity") != "identity":
            raise MediaTypeError("The request body is compressed: send it uncompressed.")
        told = request.headers.get("content-length", "")
        parts: list[bytes] = []
        length = int(told) if told.isdecimal() else 0
        seconds = self._limits.request_seconds
        try:
            async with asyncio.timeout(seconds):
                if length <= most:
                    length = 0
                    async for part in request.stream():
                        length += len(part)
                        if length > most:
                            break
                        reserve(length)
                        parts.append(part)
        except TimeoutError:
            raise SlowClientError(
                f"The request body did not arrive within {seconds:g} seconds: send it without delay."
            ) from None
        if length > most:
            raise TooLargeRequestError(
                f"The request body has {'at least ' if not told else ''}{length:,} bytes, more than the "
                f"permitted {most:,}: send several requests, or use `shunter predict` for a file."
            )
        return b"".join(parts)

    async def _scored(self, table: Table) -> Scored:
        seconds = self._limits.request_seconds
        try:
            async with asyncio.timeout(seconds):
                scored = await self._batcher.submit(table)
        except TimeoutError:
            raise LateError(
                f"The rows were not scored within {seconds:g} seconds: send fewer rows per request."
            ) from None
        self._metrics.count(table.rows, scored.answer.counts)
        scored.answer.counts.check(self._limits.max_unknown)
        return scored

    def _answered(self, path: str, endpoint: Endpoint) -> Endpoint:
        """Wrap an endpoint: turn errors into responses, and count each response."""
        seconds = self._metrics.request_seconds.labels(path)

        async def answered(request: Request) -> Response:
            begin = time.perf_counter()
            try:
                answer = await endpoint(request)
            except ClientDisconnect:
                answer = Response(status_code=499)  # the client has disconnected; the response is only counted
            except RefusedError as error:
                answer = refusal(error, request.url.path)
            except (HardwareError, CheckpointError) as error:  # the request is not at fault
                _log.error("%s: %s", path, error)
                answer = refusal(BrokenError(str(error)), request.url.path)
            except UnusableValuesError as error:
                answer = refusal(UnusableRowsError(str(error)), request.url.path)
            except ShunterError as error:
                answer = refusal(RefusedError(str(error)), request.url.path)
            except Exception:
                _log.exception("%s failed.", path)
                answer = error_response(
                    "The server failed at this request; its log has the reason.", 500, request.url.path
                )
            seconds.observe(time.perf_counter() - begin)
            self._metrics.requests.labels(path, str(answer.status_code)).inc()
            return answer

        return answered


async def _unknown(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    way = f"{request.method} {request.url.path[:60]}"
    return error_response(
        f"There is nothing at {way}: see /invocations, /v2, /ping and /metrics.", status, request.url.path
    )
