"""Address of a study's storage from a request: a path, a database address, or the name of a variable or secret.

An address with a password can be stored in an environment variable or a Prefect secret. The request then contains the
name of the variable or secret, so that neither a command line nor a stored request contains the password.
"""

import os
from collections.abc import Callable
from pathlib import Path

from shunter.errors import RequestError
from shunter.ingestion.sources.guard import check_paths, is_foreign_request
from shunter.requests.search import FROM_SECRET, FROM_VARIABLE
from shunter.secrets import keep_secret

FILE = "study.db"
SCHEMES = ("postgresql", "mysql", "mariadb")  # databases that are allowed in requests of other users
OWN_NAME = "SHUNTER_SEARCH_STORAGE"  # prefix of the variables that are allowed in requests of other users

_READERS: list[Callable[[str], str | None]] = []


def read_secrets_with(reader: Callable[[str], str | None]) -> None:
    """Register the function that reads a secret by its name; called by the module of a secret store."""
    _READERS[:] = [reader]


def storage_address(directory: Path, shared: str | None) -> str:
    """Return the address of the study's storage.

    Args:
        directory: Folder of this run only, for the default storage.
        shared: Address of a database, a path, or `env:` or `secret:` with the name of the variable or secret.

    Raises:
        RequestError: The variable or secret does not exist, or another user's request names a forbidden storage.
    """
    if shared is None:
        return f"sqlite:///{directory.resolve() / FILE}"
    if shared.startswith((FROM_VARIABLE, FROM_SECRET)):
        address = _looked_up(shared)
        keep_secret(address)
        return _as_address(address)
    if is_foreign_request():
        _check_foreign(shared)
    return _as_address(shared)


def _as_address(shared: str) -> str:
    if "://" in shared or shared.endswith(".journal"):
        return shared
    return f"sqlite:///{Path(shared).expanduser().resolve()}"


def _looked_up(shared: str) -> str:
    _, _, name = shared.partition(":")
    if is_foreign_request() and not name.upper().replace("-", "_").startswith(OWN_NAME):
        raise RequestError(
            f"A deployment may not read {shared} as the database of the search: put the address into an "
            f"environment variable or a Prefect secret whose name begins with {OWN_NAME}, and give that "
            "name."
        )
    is_variable = shared.startswith(FROM_VARIABLE)
    read = os.environ.get if is_variable else next(iter(_READERS), lambda _: None)
    found = read(name)
    if not found:
        what = "environment variable" if is_variable else "Prefect secret"
        raise RequestError(
            f"The {what} {name} named by --search-storage is not set on this machine: set it to the database's address."
        )
    return found


def _check_foreign(shared: str) -> None:
    """Raise if a request that other users may have written names a forbidden storage."""
    scheme, separator, rest = shared.partition("://")
    if separator and scheme.partition("+")[0] not in (*SCHEMES, "sqlite"):
        raise RequestError(
            f"The database address of the search begins with {scheme!r}, but a deployment may use only a "
            f"path, sqlite, {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}."
        )
    if not separator or scheme.startswith("sqlite"):
        path = rest.partition("?")[0].removeprefix("/") if separator else shared
        check_paths([Path(path).expanduser()], shown_name=path)
