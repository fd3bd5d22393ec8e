"""Responses other than scores: JSON, and errors in the format of each protocol."""

from typing import Any

from starlette.responses import Response

from shunter.errors import ShunterError
from shunter.serving.errors import RefusedError
from shunter.serving.protocols.body import to_json

JSON = "application/json"
_CODES = {
    404: "RESOURCE_DOES_NOT_EXIST",
    413: "INVALID_PARAMETER_VALUE",
    500: "INTERNAL_ERROR",
    503: "REQUEST_LIMIT_EXCEEDED",
    504: "DEADLINE_EXCEEDED",
}


def as_json(answer: Any, status: int = 200) -> Response:
    """Return a JSON response with a status code."""
    return Response(to_json(answer), status_code=status, media_type=JSON)


def refusal(error: RefusedError, path: str) -> Response:
    """Return an error response in the format of the path's protocol."""
    answer = error_response(str(error), error.status, path, error.code)
    answer.headers.update(dict(error.headers))
    return answer


def error_response(sentence: str, status: int, path: str, code: str = ShunterError.code) -> Response:
    """Return an error response: `error` in the open inference protocol, `message` and `error_code` in MLflow's."""
    if path.startswith("/v2"):
        return as_json({"error": sentence, "code": code}, status)
    return as_json({"error_code": _CODES.get(status, "BAD_REQUEST"), "message": sentence, "code": code}, status)
