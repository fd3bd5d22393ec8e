"""Console of every command, which hides secrets in its output, and the amount of output.

With `--quiet` only errors are printed, with `--verbose` all details.
"""

import os
from typing import Any

from rich import console
from rich.text import Text

from shunter.secrets import without_secrets

VARIABLE = "SHUNTER_QUIET"  # reaches the processes that a command starts
VERBOSE_VARIABLE = "SHUNTER_VERBOSE"


def is_quiet() -> bool:
    """Return True if only errors and requested data are printed."""
    return os.environ.get(VARIABLE) == "1"


def is_verbose() -> bool:
    """Return True if all details are printed."""
    return os.environ.get(VERBOSE_VARIABLE) == "1"


class Console(console.Console):
    """Rich console that hides secrets in texts and table cells before it renders them."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text without its secrets, as Rich renders it."""
        return super().render_str(without_secrets(text), **options)
