"""Removal of secrets from texts that are logged, tracked, shown or stored, and refusal of URLs for local paths."""

import logging
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from shunter.errors import RequestError

HIDDEN = "***"
SHORTEST_SECRET = 6  # a shorter value would match parts of unrelated text
# Up to the last @ before white space: a password may contain @ and /, and hiding too much is safer.
_USER_INFO = re.compile(r"(?<=://)(?:[^/:\s'\"]*:[^\s'\"]*|[^/\s'\"]+)@")
_PASSWORD = re.compile(r"(?i)(?<![\w-])([\w.-]*(?:password|passwd|pwd)=)[^&\s'\"]+")
_QUERY = re.compile(
    r"(?i)(?<=[?&;])([\w.-]*(?:token|secret|password|passwd|pwd|signature|sig|credential|api[_-]?key|access[_-]?key)"
    r"[\w.-]*=)[^&\s'\";,]+"
)
_SECRET_NAME = re.compile(r"(?i)(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY|AUTH_STRING|CREDENTIAL)")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_ADDRESS_NAME = re.compile(r"(?i)(URI|URL|DSN|CONNECTION|STORAGE|ADDRESS)$")

_kept: list[str] = []  # of addresses that are not in the environment


def without_secrets(text: str) -> str:
    """Hide passwords of addresses, tokens in their queries, and the values of secret environment variables.

    Returns:
        The text with `***` in place of each secret.
    """
    for value in (*_kept, *_secret_values(tuple(sorted(os.environ.items())))):
        text = text.replace(value, HIDDEN)
    text = _PASSWORD.sub(rf"\1{HIDDEN}", _USER_INFO.sub(f"{HIDDEN}@", text))
    return _QUERY.sub(rf"\1{HIDDEN}", text)


class AddressNotTakenError(RequestError):
    """Error: a URL is given where only a local path, or a URL of another scheme, is supported.

    Attributes:
        address: Address without its secrets.
    """

    code = "address-not-taken"

    def __init__(self, address: str) -> None:
        self.address = without_secrets(address)
        super().__init__(self.address)

    def __str__(self) -> str:
        """Return the error message."""
        return f"{self.address} is a remote address, but a local path is needed here: give the path of a local file."


def check_is_path(text: str | None) -> str | None:
    """Return a text unchanged; raise `AddressNotTakenError` if it is a URL."""
    if text is not None and _ADDRESS.match(text):
        raise AddressNotTakenError(text)
    return text


def check_names_no_user(address: str | None) -> str | None:
    """Return the address of a cluster unchanged; raise `RequestError` if it contains a user or a password."""
    if address is not None and "@" in address:
        raise RequestError(
            "The address of the Ray cluster contains a user or a password, which Ray does not support: give host:port."
        )
    return address


@dataclass(frozen=True)
class Address:
    """Address of a server or a database; only `secret` shows its secrets.

    Attributes:
        secret: The whole address, for the library that connects to it.
    """

    secret: str

    def __str__(self) -> str:
        """Return the address with `***` for its secrets."""
        return without_secrets(self.secret)

    def __repr__(self) -> str:
        """Return the masked address, as an expression."""
        return f"{type(self).__name__}({str(self)!r})"

    @property
    def link(self) -> str:
        """Return the address for a browser, without user and password."""
        return without_secrets(_USER_INFO.sub("", self.secret))


def has_password(address: str) -> bool:
    """Return True if an address contains a password in plain text."""
    users = (info.rstrip("@").partition(":")[2] for info in _USER_INFO.findall(address))
    return any(word.strip("*") for word in users) or bool(_PASSWORD.search(address) or _QUERY.search(address))


def keep_secret(address: str) -> None:
    """Register an address and its password as secrets, which `without_secrets` hides from now on."""
    found = {address} if has_password(address) else set()
    for info in _USER_INFO.findall(address):
        password = info.rstrip("@").partition(":")[2]
        found |= {password, unquote(password)}
    _kept[:] = sorted({*_kept, *(value for value in found if len(value) >= SHORTEST_SECRET)}, key=len, reverse=True)


def hide_in_logs() -> None:
    """Hide secrets in all later log lines, including their tracebacks."""
    make = logging.getLogRecordFactory()
    if getattr(make, "hides_secrets", False):
        return

    def make_hidden(*args: Any, **options: Any) -> logging.LogRecord:
        record = make(*args, **options)
        try:
            told = record.getMessage()
        except Exception:  # what cannot be formatted is reported by the handler
            return record
        if (hidden := without_secrets(told)) != told:
            record.msg, record.args = hidden, None
        if record.exc_info:
            record.exc_text = without_secrets(logging.Formatter().formatException(record.exc_info))
        return record

    make_hidden.hides_secrets = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make_hidden)


@lru_cache(maxsize=4)
def _secret_values(environment: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the values of environment variables with secret names, and passwords within addresses; longest first."""
    found = {value for name, value in environment if _SECRET_NAME.search(name)}
    for name, value in environment:
        if _ADDRESS_NAME.search(name):
            found |= {info.rstrip("@").partition(":")[2] for info in _USER_INFO.findall(value)}
    return tuple(sorted((value for value in found if len(value) >= SHORTEST_SECRET), key=len, reverse=True))
