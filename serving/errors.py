"""What a client is refused with: one sentence and the status of HTTP that goes with it."""

from shunter.errors import RequestError


class RefusedError(RequestError):
    """A request that is not answered with scores.

    Attributes:
        status: Status of HTTP.
        headers: Headers of the answer.
    """

    status = 400
    headers: tuple[tuple[str, str], ...] = ()


class NotAllowedError(RefusedError):
    """The token is missing or wrong."""

    status = 401
    headers = (("WWW-Authenticate", "Bearer"),)


class UnknownError(RefusedError):
    """There is no such model, version or address."""

    status = 404


class SlowClientError(RefusedError):
    """The request did not come in time."""

    status = 408
    headers = (("Connection", "close"),)


class TooLargeRequestError(RefusedError):
    """More bytes or rows than one request may have."""

    status = 413
    headers = (("Connection", "close"),)


class MediaTypeError(RefusedError):
    """A body in a format that is not read."""

    status = 415


class WrongHostError(RefusedError):
    """A request to a name that is not this server's."""

    status = 421


class UnusableRowsError(RefusedError):
    """More values of a column are unknown or unreadable than the server allows."""

    status = 422


class BusyError(RefusedError):
    """Too much waits already."""

    status = 503
    headers = (("Retry-After", "1"),)


class LateError(RefusedError):
    """It was not scored in time."""

    status = 504


class BrokenError(RefusedError):
    """What the model needs cannot be read; not the client's fault."""

    status = 503
