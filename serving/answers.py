"""Answers beside scores: JSON, and errors as each protocol has them."""

from typing import Any

from starlette.responses import Response

from shunter.errors import ShunterError
from shunter.serving.errors import RefusedError
from shunter.serving.protocols.body import written

JSON = "application/json"
_CODES = {
    404: "RESOURCE_DOES_NOT_EXIST",
    413: "INVALID_PARAMETER_VALUE",
    500: "INTERNAL_ERROR",
    503: "REQUEST_LIMIT_EXCEEDED",
    504: "DEADLINE_EXCEEDED",
}


def as_json(answer: Any, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(written(answer), status_code=status, media_type=JSON)


def refusal(error: RefusedError, path: str) -> Response:
    """An error as the protocol of the path has it."""
    answer = told(str(error), error.status, path, error.code)
    answer.headers.update(dict(error.headers))
    return answer


def told(sentence: str, status: int, path: str, code: str = ShunterError.code) -> Response:
    """One sentence: the open inference protocol has it under `error`, MLflow under `message` beside a code of its own.

    Args:
        sentence: What is wrong.
        status: Status of HTTP.
        path: Path of the request.
        code: Code of the error class, beside either.
    """
    if path.startswith("/v2"):
        return as_json({"error": sentence, "code": code}, status)
    return as_json({"error_code": _CODES.get(status, "BAD_REQUEST"), "message": sentence, "code": code}, status)
