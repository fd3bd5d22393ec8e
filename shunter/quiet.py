"""Whether a command was asked to be quiet: no progress, no words but errors."""

import os

VARIABLE = "SHUNTER_QUIET"  # reaches the processes that a command starts


def is_quiet() -> bool:
    """Whether nothing but errors and what was asked for as data is printed."""
    return os.environ.get(VARIABLE) == "1"
