"""What a client is refused with: one sentence and the status of HTTP that goes with it."""

from shunter.errors import RequestError


class RefusedError(RequestError):
    """A request that is not answered with scores.

    Attributes:
        status: Status of HTTP.
        headers: Headers of the answer.
    """

    code = "refused-request"
    status = 400
    headers: tuple[tuple[str, str], ...] = ()


class NotAllowedError(RefusedError):
    """The token is missing or wrong."""

    code = "wrong-token"
    status = 401
    headers = (("WWW-Authenticate", "Bearer"),)


class UnknownError(RefusedError):
    """There is no such model, version or address."""

    code = "unknown-resource"
    status = 404


class SlowClientError(RefusedError):
    """The request did not come in time."""

    code = "slow-client"
    status = 408
    headers = (("Connection", "close"),)


class TooLargeRequestError(RefusedError):
    """More bytes or rows than one request may have."""

    code = "too-large-request"
    status = 413
    headers = (("Connection", "close"),)


class MediaTypeError(RefusedError):
    """A body in a format that is not read."""

    code = "unsupported-media-type"
    status = 415


class WrongHostError(RefusedError):
    """A request to a name that is not this server's."""

    code = "wrong-host"
    status = 421


class UnusableRowsError(RefusedError):
    """More values of a column are unknown or unreadable than the server allows."""

    code = "unusable-rows"
    status = 422


class BusyError(RefusedError):
    """Too much waits already."""

    code = "busy-server"
    status = 503
    headers = (("Retry-After", "1"),)


class LateError(RefusedError):
    """It was not scored in time."""

    code = "late-answer"
    status = 504


class BrokenError(RefusedError):
    """What the model needs cannot be read; not the client's fault."""

    code = "unreadable-model"
    status = 503
