"""Who is let in: requests to the server's own names, and, where there is a token, those that know it."""

import base64
import hmac
from collections.abc import Collection
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from shunter.serving.answers import refusal
from shunter.serving.errors import NotAllowedError, RefusedError, WrongHostError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEALTH = frozenset({"/ping", "/health", "/v2/health/live", "/v2/health/ready"})  # which probes ask for, by address


class Guard:
    """Stands before an application.

    A page that a browser shows could otherwise reach a server on loopback under a name of its own (DNS rebinding).

    Args:
        app: The application.
        names: Names and addresses of the server.
        token: What a request must bring, as `Authorization: Bearer TOKEN` or as the password of a user of any name;
            None where all may ask.
    """

    def __init__(self, app: "ASGIApp", names: Collection[str], token: str | None) -> None:
        self._app, self._names, self._token = app, frozenset(name.lower() for name in names), token

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request, or let the application do it."""
        if scope["type"] == "http" and scope["path"] not in HEALTH:
            try:
                self._check(Headers(scope=scope))
            except RefusedError as error:
                await refusal(error, scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name.lower().strip("[]") not in self._names:
            raise WrongHostError(
                f"This server is not {name[:60]!r}: ask it by one of {', '.join(sorted(self._names))}, or add the name "
                "to SHUNTER_HOST_NAMES."
            )
        if self._token is not None and not hmac.compare_digest(_given(headers), self._token.encode()):
            raise NotAllowedError("The token is missing or wrong: send `Authorization: Bearer TOKEN`.")


def _given(headers: Headers) -> bytes:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except ValueError:  # no base64, or no ASCII
            return b""
    return b""
