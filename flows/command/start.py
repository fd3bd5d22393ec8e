"""Start of a flow by a command."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from shunter.errors import ShunterError, first_line
from shunter.flows.command.environment import ROOM_BYTES, ensure_home
from shunter.flows.command.passwords import protect_temporary_server
from shunter.flows.command.temporary_server import (
    ServerWatch,
    TemporaryServer,
    abandon,
    hand_over,
    server_starting,
    shared_server,
)
from shunter.flows.command.terminal import AGAIN, INTERRUPTED
from shunter.python_processes import loading, process_of_one_run
from shunter.requests import JobRequest, ProfileRequest, Request, TrainRequest
from shunter.settings import Settings

# Libraries that a training run imports after its start, in the order in which it needs them.
NEEDED = ("mlflow.tracking", "scipy.optimize", "optuna")
NEEDED_BY_OUR_STORE = ("mlflow.store.tracking.sqlalchemy_store",)
# Flows that need all these libraries.
TRAIN = ("shunter.flows.train:train", "shunter.flows.tuning:tune_only", "shunter.retraining.nightly_flow:nightly")


def start(flow: str, request: Request, **parameters: Any) -> Any:
    """Run a flow in this process and return its result; start a temporary Prefect server unless one runs.

    The server starts in a separate process while this process imports the flow and checks the request; the flow checks
    the request again. A temporary server that ends early is restarted, and a flow that failed because of it is resumed.
    The function returns after the server has stored all writes and has ended, so that the measured time of a run
    includes the end of the server.

    Args:
        flow: Module and name of the flow, such as `shunter.flows.train:train`.
        request: Request of the flow.
        parameters: Other parameters of the flow.

    Raises:
        KeyboardInterrupt: Ctrl-C, SIGTERM, SIGHUP or SIGQUIT ended the flow.
        StorageError: The home cannot be written to, or has too little free space.
        ShunterError: The model or a file is unknown, or Prefect's server ended during the flow and could not be
            restarted.
    """
    module, _, name = flow.partition(":")
    with _ended_at_once() as before_the_end, loading(module):
        ensure_home(room_bytes=ROOM_BYTES)
        protect_temporary_server()
        with server_starting() as server:
            if server is not None:
                before_the_end.append(server.stop)
            _check(request)
            function = getattr(import_module(module), name)
            if server is not None and flow in TRAIN:
                _load_until_it_answers(server)

    from httpx import TransportError
    from prefect.exceptions import TerminationSignal

    watched, heartbeats = server or shared_server(), nullcontext() if server is None else _without_heartbeats()
    with process_of_one_run(), ServerWatch(watched) as watch, heartbeats:
        while True:
            try:
                result = function(request, **parameters)
                break
            except TerminationSignal as signal_received:  # Prefect's exception for SIGTERM
                raise KeyboardInterrupt from signal_received
            except TransportError as error:
                if watch.is_back():
                    parameters.pop("fresh", None)  # resume, even if the run was started anew
                    continue
                abandon()
                raise ShunterError(
                    f"Prefect's server stopped during the run ({first_line(error)}): give the same command again to "
                    "resume."
                ) from error
    if watched is not None and watched.has_started:
        hand_over()
        watched.stop()
    return result


def _load_until_it_answers(server: TemporaryServer) -> None:
    """Import libraries that the flow needs later, one at a time while the server is not ready yet."""
    from shunter.tracking.store import is_file_store

    for name in (*(NEEDED_BY_OUR_STORE if is_file_store() else ()), *NEEDED):
        if server.has_answered:
            return
        import_module(name)
    if not server.has_answered:
        from shunter.engine.executors.in_process import load_libraries

        load_libraries("cpu")


@contextmanager
def _without_heartbeats() -> Iterator[None]:
    """Disable heartbeats to a server that ends with the run, since a run waits up to a second for the last one."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


@contextmanager
def _ended_at_once() -> Iterator[list[Callable[[], None]]]:
    """Make Ctrl-C and SIGTERM end the process at once within the block, in which there is no state to save.

    If KeyboardInterrupt is raised during an import, a callback of the import system can suppress the exception without
    releasing the import lock. The command would continue, and hang at the next import of another thread.
    """
    before_the_end: list[Callable[[], None]] = []

    def end(number: int, frame: FrameType | None) -> None:
        os.write(sys.stderr.fileno(), f"{AGAIN}\n".encode())
        for action in before_the_end:
            action()
        os._exit(INTERRUPTED)

    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield before_the_end
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield before_the_end
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _check(request: Request) -> None:
    """Raise, before the flow begins, if a request names an unknown model, an absent extension or an invalid file."""
    if isinstance(request, JobRequest):
        from shunter.models.names import check_model

        check_model(request.model)
        if isinstance(request, TrainRequest):
            request.search.check_is_installed()
            request.ensemble.check_is_installed()
            is_divided = request.training.processes > 1 or request.training.plan or request.nodes.cluster
            if is_divided or request.checkpoints.is_incremental:
                from shunter.tasks.training_plans import check_is_installed

                check_is_installed(request)
        if isinstance(request, TrainRequest) and request.checkpoints.checkpoint_copy is not None:
            from shunter.tasks.run_state import check_copies

            check_copies(request)
        _check_files(request)
    elif isinstance(request, ProfileRequest):
        from shunter.tasks.profile import check_request

        check_request(request)


def _check_files(request: JobRequest) -> None:
    """Raise if a file of the request is missing or invalid; the rows of the data are checked by the flow."""
    if not request.source.is_found_by_flow:
        from shunter.ingestion.sources.addresses import parse_address
        from shunter.ingestion.sources.names import MOVIELENS, is_named
        from shunter.ingestion.sources.open import open_source

        is_dataset = is_named(request.data) and request.data.startswith(MOVIELENS)
        is_fetched = is_dataset or parse_address(request.data) is not None
        if not is_fetched or Path(request.data).exists():
            source = request.source
            downloads = Settings().downloads_directory
            open_source(source.data, source.format, source.schema_file, downloads, source.held_out, where=source.where)
    if (prices := request.pricing.prices_path) is not None:
        from shunter.hardware.catalogue.prices import Prices

        Prices.read(prices)
    if request.pricing.grid is not None:
        from shunter.hardware.cost.grid import Grid

        Grid.read(request.pricing.grid)
