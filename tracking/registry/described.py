"""A part of the description of a version that is written anew each time."""

import re

from shunter.tracking.registry.client import open_registry
from shunter.tracking.registry.versions import Version
from shunter.tracking.store import tracking_errors


def add_to_description(version: Version, title: str, text: str) -> None:
    """Let the description of a version end with a part under a title, which replaces one of that title.

    Raises:
        TrackingError: The store fails.
    """
    registry = open_registry()
    with tracking_errors():
        former = registry.mlflow.get_model_version(version.name, str(version.version)).description or ""
        registry.describe_version(version.name, version.version, with_part(former, title, text))


def with_part(former: str, title: str, text: str) -> str:
    """A text in Markdown with a part under a title of the second order at its end, instead of one that is there."""
    part = re.compile(rf"^## {re.escape(title)}\n.*?(?=^#{{1,2}} |\Z)", re.MULTILINE | re.DOTALL)
    return f"{part.sub('', former).rstrip()}\n\n## {title}\n\n{text}\n".lstrip()
