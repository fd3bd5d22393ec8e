"""The command that puts a model behind HTTP."""

import os
from typing import Any

from shunter.flows.command.options import requested, with_options
from shunter.flows.command.terminal import one_sentence_errors, print_line
from shunter.requests.serving import ServeRequest


@with_options(ServeRequest)
def serve(**options: Any) -> None:
    """Answer requests for scores over HTTP, on loopback, with a registered or exported model, until Ctrl-C."""
    with one_sentence_errors("Stopped."):
        request = requested(ServeRequest, options)
        # Read when torch is loaded: threads that wait by spinning would take the processor from those that score.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        from shunter.flows.command.exposure import LOOPBACK, exposure, serving_token
        from shunter.serving.server import ScoreServer

        where = exposure()
        names = {"localhost", LOOPBACK, where.reached_at, *where.names}
        server = ScoreServer(request, where.host, names, serving_token(where))

        def say_ready() -> None:
            current = server.keeper.current()
            for placement in current.placements():
                print_line(placement)
            if current.items is not None:
                print_line(current.items.told)
            print_line(
                f"{current.title} answers at http://{where.browser_name}:{server.port}/invocations until Ctrl-C."
            )

        server.run(say_ready)
        print_line("Stopped: every request that had come was answered.")
