"""Secrets out of texts: what is logged, tracked, shown or stored passes through here."""

import os
import re
from functools import lru_cache

HIDDEN = "***"
SHORTEST_SECRET = 6  # a shorter value would be found in words that have nothing to do with it
_USER_INFO = re.compile(r"(?<=://)[^/@\s'\"]+@")
_QUERY = re.compile(
    r"(?i)(?<=[?&;])([\w.-]*(?:token|secret|password|passwd|pwd|signature|sig|credential|api[_-]?key|access[_-]?key)"
    r"[\w.-]*=)[^&\s'\";,]+"
)
_SECRET_NAME = re.compile(r"(?i)(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY|AUTH_STRING|CREDENTIAL)")
_ADDRESS_NAME = re.compile(r"(?i)(URI|URL|DSN|CONNECTION)$")


def without_secrets(text: str) -> str:
    """Hide passwords of addresses, tokens in their queries, and the values of secret environment variables.

    Args:
        text: anything.

    Returns:
        The text with `***` in their places.
    """
    for value in _secret_values(tuple(sorted(os.environ.items()))):
        text = text.replace(value, HIDDEN)
    return _QUERY.sub(rf"\1{HIDDEN}", _USER_INFO.sub(f"{HIDDEN}@", text))


@lru_cache(maxsize=4)
def _secret_values(environment: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Values of variables that are secret by their names, and passwords within addresses; longest first."""
    found = {value for name, value in environment if _SECRET_NAME.search(name)}
    for name, value in environment:
        if _ADDRESS_NAME.search(name):
            found |= {info.rstrip("@").partition(":")[2] for info in _USER_INFO.findall(value)}
    return tuple(sorted((value for value in found if len(value) >= SHORTEST_SECRET), key=len, reverse=True))
