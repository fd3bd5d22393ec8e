"""MLflow's server, with pages that show training runs first instead of traces of language models.

MLflow remembers in the browser which of the two a user has chosen. The first page chooses training runs if the user has
not chosen yet.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response
    from starlette.middleware.base import RequestResponseEndpoint

APP = "shunter"  # entry point of the group `mlflow.app`, as `mlflow server --app-name` takes it
KEY = "mlflow.workflowType_v1"  # key of MLflow 3.17 in the storage of the browser
CHOICE = "machine_learning"
SCRIPT = (
    f"<script>if (localStorage.getItem('{KEY}') === null) "
    f"localStorage.setItem('{KEY}', JSON.stringify('{CHOICE}'));</script>"
)
PAGES = ("/", "/index.html")


def create_app() -> "FastAPI":
    """Return MLflow's application, whose first page selects training runs."""
    from fastapi.responses import HTMLResponse
    from mlflow.server.fastapi_app import app

    @app.middleware("http")
    async def choose_training_runs(request: "Request", call_next: "RequestResponseEndpoint") -> "Response":
        response = await call_next(request)
        if request.method != "GET" or request.url.path not in PAGES or response.status_code != 200:
            return response
        body = b"".join([chunk async for chunk in response.body_iterator])  # pyright: ignore[reportAttributeAccessIssue]
        kept = {name: value for name, value in response.headers.items() if name not in ("content-length", "etag")}
        return HTMLResponse(body.decode().replace("<head>", f"<head>{SCRIPT}", 1), headers=kept)

    return app
