"""Access control: a request must name this server as its host, and must have the token if there is one."""

import base64
import hmac
from collections.abc import Collection
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from shunter.serving.answers import refusal
from shunter.serving.errors import NotAllowedError, RefusedError, WrongHostError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEALTH = frozenset({"/ping", "/health", "/v2/health/live", "/v2/health/ready"})  # open to health probes without token


class Guard:
    """ASGI middleware that checks the host name and the token of each request.

    Without the check of the host name, a foreign web page could reach a server on loopback under the page's own domain
    (DNS rebinding).

    Args:
        app: Application behind the guard.
        names: Names and addresses of the server.
        token: Token that a request must have, as `Authorization: Bearer TOKEN` or as the password of any user name;
            None if no token is needed.
    """

    def __init__(self, app: "ASGIApp", names: Collection[str], token: str | None) -> None:
        self._app, self._names, self._token = app, frozenset(name.lower() for name in names), token

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Refuse a request, or pass it to the application."""
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
                f"The request names the unknown host {name[:60]!r}: use one of "
                f"{', '.join(sorted(self._names))}, or add the name to SHUNTER_HOST_NAMES."
            )
        if self._token is not None and not hmac.compare_digest(_given(headers), self._token.encode()):
            raise NotAllowedError("The access token is missing or wrong: send `Authorization: Bearer TOKEN`.")


def _given(headers: Headers) -> bytes:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except ValueError:  # not base64, or not ASCII
            return b""
    return b""
