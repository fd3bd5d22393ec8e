"""Flows called from Python, with what the command sets up around them: environment, home and Prefect server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shunter.flows.command.environment import ROOM_BYTES, ensure_home, prepare_environment
from shunter.flows.command.passwords import protect_temporary_server
from shunter.flows.command.temporary_server import server_starting
from shunter.requests import Request, TrainRequest

if TYPE_CHECKING:
    from shunter.flows.train import TrainSummary
    from shunter.search.result import TuneResult


def train(request: TrainRequest, *, fresh: bool = False) -> "TrainSummary":
    """Train a recommender within the limits and register it, as `shunter train` does; resume an interrupted run.

    Args:
        request: Data, limits, objective and effort.
        fresh: Start anew instead of resuming an interrupted run of the same request.

    Raises:
        ShunterError: The request, the data or the machine do not allow it.
    """
    return run("shunter.flows.train:train", request, fresh=fresh)


def tune(request: TrainRequest) -> "TuneResult":
    """Search settings without a full training, as `shunter tune` does; resume an interrupted search.

    Args:
        request: Data, limits, objective and effort; options of the ensemble are not used.

    Raises:
        ShunterError: The request, the data or the machine do not allow it.
    """
    return run("shunter.flows.tuning:tune_only", request)


def run(flow: str, request: Request, **parameters: Any) -> Any:
    """Run a flow in this process and return its result.

    It uses the Prefect server that `shunter up` or `PREFECT_API_URL` names. Without one, the first call starts a
    temporary server, which ends with this process; no Prefect may have been imported before that call.

    Args:
        flow: Module and name of the flow, such as `shunter.retraining.nightly_flow:nightly`.
        request: Request of the flow.
        parameters: Other parameters of the flow.

    Raises:
        ShunterError: The request, the data or the machine do not allow it.
    """
    prepare_environment(debug=False)
    ensure_home(room_bytes=ROOM_BYTES)
    protect_temporary_server()
    with server_starting():
        module, _, name = flow.partition(":")
        function = getattr(import_module(module), name)
    return function(request, **parameters)
