"""Database of Prefect's server: SQLite in SHUNTER_HOME, or a PostgreSQL database that `shunter up` was given."""

import asyncio
import json

from shunter.checked_json import json_object, read_or_quarantine, write_checked
from shunter.errors import RequestError, ShunterError, first_line
from shunter.secrets import keep_secret, without_secrets
from shunter.settings import Settings

SQLITE = "sqlite"
VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
CONNECT_SECONDS = 20
_SCHEMES = ("postgresql://", "postgres://", "postgresql+asyncpg://")


class UnreachableDatabaseError(ShunterError):
    """Prefect's database does not accept a connection.

    Attributes:
        address: Address of the database, without secrets.
    """

    code = "unreachable-database"
    exit_code = 8

    def __init__(self, address: str, error: Exception) -> None:
        super().__init__(address, error)
        self.address, self._reason = without_secrets(address), f"{type(error).__name__}: {first_line(error)}"

    def __str__(self) -> str:
        """Return the error message."""
        return without_secrets(
            f"Prefect's database {self.address} accepts no connection ({self._reason}): start it, correct "
            f"--prefect-database, or give --prefect-database {SQLITE}."
        )


def resolve_database(requested: str | None) -> str | None:
    """Return the address of Prefect's PostgreSQL database, as requested now or at the last start; None for SQLite.

    Args:
        requested: Address of a database, `sqlite`, or None for the database of the last start.

    Raises:
        RequestError: The address is not a PostgreSQL address.
        UnreachableDatabaseError: The database accepts no connection.
    """
    path = Settings().services_directory / "prefect-database"
    address = requested or read_or_quarantine(path, lambda text: str(json_object(text)["address"])) or SQLITE
    keep_secret(address)
    if address != SQLITE:
        scheme = next((scheme for scheme in _SCHEMES if address.startswith(scheme)), None)
        if scheme is None:
            shown = without_secrets(address)
            raise RequestError(f"--prefect-database is {shown!r}: give {_SCHEMES[0]}HOST/NAME, or {SQLITE}.")
        address = f"{_SCHEMES[0]}{address.removeprefix(scheme)}"
        asyncio.run(_check(address))
    if requested is not None:
        write_checked(path, json.dumps({"address": address}))  # the folder is accessible to its owner only
    return None if address == SQLITE else address


def environment_of(address: str | None) -> dict[str, str]:
    """Return the environment variables by which Prefect's server uses a database; empty for SQLite."""
    return {} if address is None else {VARIABLE: address.replace(_SCHEMES[0], _SCHEMES[2], 1)}


async def _check(address: str) -> None:
    """Raise if a database accepts no connection."""
    import asyncpg

    try:
        connection = await asyncpg.connect(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise UnreachableDatabaseError(address, error) from error
    await connection.close()
