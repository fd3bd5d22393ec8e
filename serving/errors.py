"""Errors that are sent to a client, each with its HTTP status."""

from shunter.errors import RequestError


class RefusedError(RequestError):
    """Error: a request is refused without scores.

    Attributes:
        status: HTTP status.
        headers: Headers of the response.
    """

    code = "refused-request"
    status = 400
    headers: tuple[tuple[str, str], ...] = ()


class NotAllowedError(RefusedError):
    """Error: the token is missing or wrong."""

    code = "wrong-token"
    status = 401
    headers = (("WWW-Authenticate", "Bearer"),)


class UnknownError(RefusedError):
    """Error: the model, version or path of a request does not exist."""

    code = "unknown-resource"
    status = 404


class SlowClientError(RefusedError):
    """Error: the client did not send the request in time."""

    code = "slow-client"
    status = 408
    headers = (("Connection", "close"),)


class TooLargeRequestError(RefusedError):
    """Error: the request has more bytes or rows than allowed."""

    code = "too-large-request"
    status = 413
    headers = (("Connection", "close"),)


class MediaTypeError(RefusedError):
    """Error: the body has an unsupported format."""

    code = "unsupported-media-type"
    status = 415


class WrongHostError(RefusedError):
    """Error: the request names a host that is not this server."""

    code = "wrong-host"
    status = 421


class UnusableRowsError(RefusedError):
    """Error: more values of a column are unknown or unreadable than the server allows."""

    code = "unusable-rows"
    status = 422


class BusyError(RefusedError):
    """Error of a server with too many waiting requests."""

    code = "busy-server"
    status = 503
    headers = (("Retry-After", "1"),)


class LateError(RefusedError):
    """Error: the request was not scored in time."""

    code = "late-answer"
    status = 504


class BrokenError(RefusedError):
    """Error: a part of the model cannot be read; the request is not at fault."""

    code = "unreadable-model"
    status = 503
