"""Names of flow runs, and notification about a flow run that has failed or crashed."""

import json
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.logging.loggers import flow_run_logger
from prefect.settings import get_current_settings

from shunter.requests import Request
from shunter.secrets import without_secrets
from shunter.settings import Settings

TIMEOUT_SECONDS = 10


def notify(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Notify about a failed or crashed flow run; a hook of the flows, see `notify_about`."""
    notify_about(flow.name, flow_run, state)


def notify_about(flow_name: str, flow_run: FlowRun, state: State[Any]) -> None:
    """Post a message to `SHUNTER_NOTIFY_WEBHOOK`, and pass it to `SHUNTER_NOTIFY_COMMAND`.

    Errors are logged, not raised, and without the address or the command, which may hold secrets.
    """
    settings = Settings()
    if settings.notify_webhook is None and settings.notify_command is None:
        return
    message = json.dumps(description(flow_name, flow_run, state)).encode()
    if settings.notify_webhook is not None:
        _attempt(flow_run, "SHUNTER_NOTIFY_WEBHOOK", _post, settings.notify_webhook.get_secret_value(), message)
    if settings.notify_command is not None:
        _attempt(flow_run, "SHUNTER_NOTIFY_COMMAND", _run, settings.notify_command.get_secret_value(), message)


def description(flow_name: str, flow_run: FlowRun, state: State[Any]) -> dict[str, str]:
    """Return the fields of the message: `text` is a sentence for chat services, the other fields are for programs."""
    reason = without_secrets(state.message or "no reason given")
    values = {
        "text": f"{flow_name} {flow_run.name} ended as {state.name}: {reason}",
        "flow": flow_name,
        "flow_run": flow_run.name,
        "flow_run_id": str(flow_run.id),
        "state": state.name or state.type.value,
        "reason": reason,
    }
    ui = get_current_settings().ui_url
    return {**values, "url": f"{ui}/runs/flow-run/{flow_run.id}"} if ui else values


def _attempt(
    flow_run: FlowRun, setting: str, send: Callable[[str, bytes], None], receiver: str, message: bytes
) -> None:
    try:
        send(receiver, message)
    except Exception as error:  # a hook that raises would hide why the run failed
        flow_run_logger(flow_run).warning(
            "No notification was sent: the receiver in %s failed (%s).", setting, type(error).__name__
        )


def _post(address: str, message: bytes) -> None:
    if not address.startswith(("https://", "http://")):
        raise ValueError("the notification address does not begin with http:// or https://")
    request = urllib.request.Request(address, message, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
        pass


def _run(command: str, message: bytes) -> None:
    subprocess.run(
        shlex.split(command), input=message, timeout=TIMEOUT_SECONDS, check=True, capture_output=True, shell=False
    )


MOST_LETTERS = 40  # of one value

# What Prefect's form proposes: one of these adjectives and a short animal's name; in its first version three parts.
_PROPOSED = re.compile(
    "(Awesome|Rustic|Small|Gorgeous|Fantastic|Sleek|Intelligent|Unbranded|Refined|Licensed|Generic|Practical|Ergonomic|"
    r"Handcrafted|Tasty|Handmade|Incredible)-\S{1,6}|[a-z]+\d{3}-[a-z]+-[a-z]+"
)
_TWO_WORDS = re.compile(r"([a-z]+)-([a-z]+)")


def named_by(*fields: str) -> Callable[[], str]:
    """Return a function that names a flow run after its flow and the values of some fields; for `flow_run_name`.

    A name that a user has typed stays.
    """

    def name() -> str:
        from prefect.context import FlowRunContext

        context = FlowRunContext.get()
        assert context is not None, "Prefect resolves the name of a run within it"
        assert context.flow is not None
        assert context.flow_run is not None
        if not is_generated(context.flow_run.name):
            return context.flow_run.name
        parameters = context.parameters or {}
        request = parameters.get("request")
        options = {**parameters, **(request.flat() if isinstance(request, Request) else {})}
        values = [options.get(field) for field in fields]
        return " ".join([context.flow.name, *(_short(value) for value in values if value)])

    return name


def is_generated(name: str) -> bool:
    """Return True if Prefect has made up the name of a run: its form, its server or its client."""
    if _PROPOSED.fullmatch(name):
        return True
    if (words := _TWO_WORDS.fullmatch(name)) is None:
        return False
    from coolname.data import config

    known = {word for part in config.values() for word in part.get("words", ())}
    return known.issuperset(words.groups())


def _short(value: Any) -> str:
    """Return a value as short text: of a path only the last part, or the last two parts for `MODEL/VERSION`."""
    text = str(value)
    if "/" in text and "," not in text:
        path = PurePath(text)
        text = "/".join(path.parts[-2:]) if path.name.isdigit() else path.name
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
