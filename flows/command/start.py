"""The one place where a command starts a flow."""

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

from shunter.collection import loading
from shunter.errors import ShunterError, first_line
from shunter.flows.command.environment import ROOM_BYTES, ensure_home
from shunter.flows.command.passwords import protect_temporary_server
from shunter.flows.command.server_watch import ServerWatch
from shunter.flows.command.temporary_server import TemporaryServer, abandon, hand_over, server_starting, shared_server
from shunter.flows.command.terminal import AGAIN, INTERRUPTED
from shunter.process_age import process_of_one_run
from shunter.requests import JobRequest, ProfileRequest, Request, TrainRequest
from shunter.settings import Settings

# Flows that come to need all that `shunter.tasks.libraries` loads.
TRAIN = ("shunter.flows.train:train", "shunter.flows.tuning:tune_only", "shunter.retraining.nightly_flow:nightly")


def start(flow: str, request: Request, **parameters: Any) -> Any:
    """Run a flow in this process, with a temporary server unless one runs, and return its result.

    The server starts in a process of its own, while this one imports the flow and refuses what cannot work; the flow
    refuses it too. A temporary server that ends in the middle is started again, and a flow that has missed it meanwhile
    goes on. The server has written down all that it was sent, and has ended, when the result is returned, so that who
    counts the seconds of a run counts these.

    Args:
        flow: Module and name of the flow, such as `shunter.flows.train:train`.
        request: Its request.
        parameters: Its other parameters.

    Raises:
        KeyboardInterrupt: The flow was told to end, by Ctrl-C, SIGTERM, SIGHUP or SIGQUIT.
        StorageError: The home cannot be written, or has no room.
        ShunterError: The model or a file is unknown, or Prefect's server went away and
            did not come back while the flow needed it.
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
            except TerminationSignal as signal_received:  # SIGTERM, as Prefect passes it on
                raise KeyboardInterrupt from signal_received
            except TransportError as error:
                if watch.is_back():
                    parameters.pop("fresh", None)  # what was begun anew goes on
                    continue
                abandon()
                raise ShunterError(
                    f"Prefect's server went away in the middle ({first_line(error)}): give the same command again, it "
                    "goes on."
                ) from error
    if watched is not None and watched.has_started:
        hand_over()
        watched.stop()
    return result


def _load_until_it_answers(server: TemporaryServer) -> None:
    """Load what the flow needs later while its server is not ready yet."""
    from shunter.tasks.libraries import load_one_by_one

    loaded = load_one_by_one()
    while not server.has_answered and next(loaded, None):
        pass


@contextmanager
def _without_heartbeats() -> Iterator[None]:
    """Send no signs of life to a server that lives no longer than the run: a run waits up to a second for the last."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


@contextmanager
def _ended_at_once() -> Iterator[list[Callable[[], None]]]:
    """Let Ctrl-C and SIGTERM end the process within the block, where there is nothing to save yet.

    Raised amid an import, KeyboardInterrupt may get lost in a callback of the import system and leave its lock taken:
    the command would go on, and hang as soon as another thread imports something.

    Yields:
        What is called before the end; to be added to.
    """
    before_the_end: list[Callable[[], None]] = []

    def end(number: int, frame: FrameType | None) -> None:
        os.write(sys.stderr.fileno(), f"{AGAIN}\n".encode())
        for action in before_the_end:
            action()
        os._exit(INTERRUPTED)

    if threading.current_thread() is not threading.main_thread():  # which alone takes signals
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
    """Refuse what cannot work before a flow begins."""
    if isinstance(request, JobRequest):
        from shunter.models.names import check_model

        check_model(request.model)
        if isinstance(request, TrainRequest):
            request.search.check_is_installed()
            request.ensemble.check_is_installed()
        if isinstance(request, TrainRequest) and request.training.plan is not None:
            from shunter.tasks.training_plans import processes_of

            processes_of(request)
        if isinstance(request, TrainRequest) and request.checkpoints.checkpoint_copy is not None:
            from shunter.engine.checkpoint.remote import check_address

            check_address(request.checkpoints.checkpoint_copy)
        _check_files(request)
    elif isinstance(request, ProfileRequest):
        from shunter.tasks.profile import check_request

        check_request(request)


def _check_files(request: JobRequest) -> None:
    """Refuse files that are not there or say something else; their rows are read by the flow."""
    if not request.source.is_found_by_flow:
        from shunter.ingestion.sources.names import MOVIELENS, is_named
        from shunter.ingestion.sources.open import open_source

        is_fetched = is_named(request.data) and request.data.startswith(MOVIELENS)
        if not is_fetched or Path(request.data).exists():
            source = request.source
            downloads = Settings().downloads_directory
            open_source(source.data, source.format, source.schema_file, downloads, source.held_out)
    if (prices := request.pricing.prices_path) is not None:
        from shunter.hardware.catalogue.prices import Prices

        Prices.read(prices)
    if request.pricing.grid is not None:
        from shunter.hardware.cost.grid import Grid

        Grid.read(request.pricing.grid)
