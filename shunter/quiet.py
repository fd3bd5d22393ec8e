"""Amount of output of a command: with `--quiet` errors only, with `--verbose` all details."""

import os

VARIABLE = "SHUNTER_QUIET"  # reaches the processes that a command starts
VERBOSE_VARIABLE = "SHUNTER_VERBOSE"


def is_quiet() -> bool:
    """Return True if only errors and requested data are printed."""
    return os.environ.get(VARIABLE) == "1"


def is_verbose() -> bool:
    """Return True if all details are printed."""
    return os.environ.get(VERBOSE_VARIABLE) == "1"
