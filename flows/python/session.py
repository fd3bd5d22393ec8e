"""Execution of flows in the process of a script, a notebook or another flow, with the environment of a command."""

import sys
import warnings
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from shunter.flows.command.environment import ROOM_BYTES, ensure_home, prepare_environment
from shunter.flows.command.passwords import protect_temporary_server
from shunter.flows.command.prefect_settings import settings_files_ignored
from shunter.flows.command.temporary_server import ServerWatch, TemporaryServer, server_starting
from shunter.requests import Request

_servers: list[TemporaryServer] = []  # the server that this process has started, if any


def run(flow: str, request: Request, **parameters: Any) -> Any:
    """Run a flow in this process and return its result.

    The flow uses the Prefect server that `shunter up`, `PREFECT_API_URL` or Prefect's profile names; called within a
    flow of your own, it is a subflow of that flow. Without a server, the first call starts a temporary one, which ends
    with this process. If Prefect was imported before the first call, its settings are left as they are.

    Args:
        flow: Module and name of the flow, such as `shunter.retraining.nightly_flow:nightly`.
        request: Request of the flow.
        parameters: Other parameters of the flow.

    Raises:
        ShunterError: The flow failed, for instance because of the request, the data or the machine.
        KeyboardInterrupt: The run was interrupted; the same call resumes it.
    """
    module, _, name = flow.partition(":")
    is_begun = "prefect" in sys.modules
    prepare_environment(debug=False, is_own_process=False)
    ensure_home(room_bytes=ROOM_BYTES, with_prefect=not is_begun)
    with ExitStack() as stack:
        if not is_begun:
            protect_temporary_server()
            stack.enter_context(settings_files_ignored())
            if server := stack.enter_context(server_starting()):
                _servers.append(server)
        function = getattr(import_module(module), name)
    with ServerWatch(_servers[-1] if _servers else None) as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ignore warnings of libraries, as in a command
        watch.is_back()  # waits for the restart of a server that ended between two calls
        return function(request, **parameters)
