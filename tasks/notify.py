"""Notification about a flow run that has failed or crashed."""

import json
import shlex
import subprocess
import urllib.request
from collections.abc import Callable
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.logging.loggers import flow_run_logger
from prefect.settings import get_current_settings

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
