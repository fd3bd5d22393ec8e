"""Names of flow runs: kind, data and model, unless a user has typed a name into the form."""

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from shunter.requests import Request

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
