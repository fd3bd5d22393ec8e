"""The command `shunter serve`, which serves a model over HTTP."""

import os
from typing import Any

from shunter.errors import RequestError
from shunter.flows.command.options import requested, with_options
from shunter.flows.command.services import LOOPBACK, Exposure, exposure
from shunter.flows.command.terminal import one_sentence_errors, print_line
from shunter.serving.request import ServeRequest
from shunter.settings import Settings

LEAST_TOKEN = 16


@with_options(ServeRequest)
def serve(**options: Any) -> None:
    """Serve a registered or exported model over HTTP."""
    with one_sentence_errors("Stopped."):
        request = requested(ServeRequest, options)
        # This variable is read when torch is loaded. Otherwise waiting threads would spin and slow down the scoring
        # threads.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        from shunter.serving.server import ScoreServer

        where = exposure()
        names = {"localhost", LOOPBACK, where.reached_at, *where.names}
        server = ScoreServer(request, where.host, names, serving_token(where))

        def say_ready() -> None:
            current = server.updater.current()
            for placement in current.placements():
                print_line(placement)
            if current.items is not None:
                print_line(current.items.search_sentence)
            print_line(
                f"{current.title} answers at http://{where.browser_name}:{server.port}/invocations until Ctrl-C."
            )

        server.run(say_ready)
        print_line("Stopped: every received request was answered.")


def serving_token(where: Exposure) -> str | None:
    """Return the token that clients of `shunter serve` must send, None if no token is needed.

    Raises:
        RequestError: The server is reachable from other machines without a token, or the token is too weak.
    """
    token = Settings().serve_token
    if token is None:
        if where.is_public:
            raise RequestError(
                f"The model is not served on {where.host} without a token, because anyone who reaches the "
                "server can use it: set SHUNTER_SERVE_TOKEN to a long random text."
            )
        return None
    text = token.get_secret_value()
    if len(text) < LEAST_TOKEN or not text.isascii() or not text.isprintable():
        raise RequestError(
            f"SHUNTER_SERVE_TOKEN must have at least {LEAST_TOKEN} ASCII characters: set it to a long random text."
        )
    return text
