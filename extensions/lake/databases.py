"""Tables and queries of DuckDB, SQLite and PostgreSQL, read in one snapshot by a connection that cannot write."""

import asyncio
import csv
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from shunter.errors import RequestError
from shunter.extensions.lake.store_errors import NoAccessError, NoObjectError
from shunter.extensions.lake.tables import UnreadableTableError, store_result, write_batches
from shunter.ingestion.sources.addresses import Address
from shunter.ingestion.sources.guard import is_foreign_request
from shunter.registry import check_package
from shunter.secrets import without_secrets

_BATCH_ROWS = 65_536
_MEMORY = "1GiB"  # of DuckDB, which writes larger sorts and joins to disk
_NAME = re.compile(r"\w+(\.\w+)*")
_READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    getattr(sqlite3, "SQLITE_RECURSIVE", 33),
}


class QueryError(RequestError):
    """Error: a query is refused, because it writes, is not a single SELECT, or is invalid.

    Attributes:
        address: Address of the database.
    """

    code = "refused-query"

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(address, str(reason))
        self.address = address

    def __str__(self) -> str:
        """Return the error message."""
        reason = (self.args[1].splitlines() or [""])[0][:200].rstrip(".:")
        reason = without_secrets(reason)
        return f"The query of {self.address} is refused ({reason}): give the name of a table, or one SELECT."


class _Database(ABC):
    """Store of a database: `LOCATION#TABLE` or `LOCATION#SELECT ...`."""

    name = ""
    suffix = ".csv"

    def find(self, address: Address) -> list[Path]:
        """Return the path of the local copy of a result.

        Raises:
            RequestError: The query writes or is wrong, or is not permitted.
            DataError: There is no such database, or it cannot be read.
        """
        query = address.query.strip().rstrip(";")
        shown_address = address.location if "://" in address.location else f"{self.name}:{address.location}"
        if not query:
            raise RequestError(
                f"The database address {shown_address} names no table: write the table behind a #, as in "
                f"{shown_address}#clicks."
            )
        file = Path(address.location).name.partition(".")[0]
        if _NAME.fullmatch(query):
            file = query.rpartition(".")[2]
            quoted = ".".join(f'"{part}"' for part in query.split("."))
            query = f"SELECT * FROM {quoted}"
        elif is_foreign_request():
            raise RequestError(
                f"The database address {shown_address} contains a query, which may be given only on the command line: "
                "name a table or a view."
            )
        if "?" in address.location and is_foreign_request():
            raise RequestError(
                f"The database address {shown_address} has parameters, which may be given only on the command line: "
                "leave them out."
            )
        if "://" not in address.location and not Path(address.location).expanduser().is_file():
            raise NoObjectError(shown_address, "is no file")
        file += self.suffix
        return [
            store_result(self.name, address.location, file, lambda path: self.read(address, query, shown_address, path))
        ]

    @abstractmethod
    def read(self, address: Address, query: str, shown_address: str, path: Path) -> None:
        """Write the result of a query to a file."""

    def copy(self, paths: Iterable[Path]) -> None:
        """Raise `DataError`, because the local copy of a result was removed after `find` returned it."""
        raise NoObjectError(str(next(iter(paths))), "was removed")


class DuckDbStore(_Database):
    """Tables and queries of a file of DuckDB, which reads no other files."""

    name, suffix = "duckdb", ".parquet"

    def read(self, address: Address, query: str, shown_address: str, path: Path) -> None:
        """Write the result of a query to a Parquet file."""
        check_package("duckdb", "duckdb", "lake")
        import duckdb

        options: dict[str, Any] = {"enable_external_access": "false", "lock_configuration": "true"}
        options |= {"memory_limit": _MEMORY, "temp_directory": str(path.parent / "spilled")}
        try:
            with duckdb.connect(Path(address.location).expanduser(), read_only=True, config=options) as connection:
                try:
                    statements = connection.extract_statements(query)
                    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                        raise QueryError(shown_address, "it is not a single SELECT")
                    result = connection.sql(query)
                except (duckdb.ProgrammingError, duckdb.PermissionException, duckdb.InvalidInputException) as error:
                    raise QueryError(shown_address, error) from error
                write_batches(path, result.to_arrow_reader(_BATCH_ROWS))
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # of the local file; the stream's have no number
                raise
            raise UnreadableTableError(shown_address, error) from error


class SqliteStore(_Database):
    """Tables and queries of a file of SQLite."""

    name = "sqlite"

    def read(self, address: Address, query: str, shown_address: str, path: Path) -> None:
        """Write the result of a query to a CSV file."""
        source = Path(address.location).expanduser().resolve().as_uri()
        try:
            with (
                closing(sqlite3.connect(f"{source}?mode=ro", uri=True)) as connection,
                path.open("w", encoding="utf-8", newline="") as file,
            ):
                connection.set_authorizer(
                    lambda action, *_: sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY
                )
                try:
                    result = connection.execute(query)
                except (sqlite3.DatabaseError, sqlite3.Warning) as error:
                    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                        raise
                    raise QueryError(shown_address, error) from error
                if result.description is None:
                    raise QueryError(shown_address, "it is not a SELECT")
                writer = csv.writer(file)
                writer.writerow(column[0] for column in result.description)
                while rows := result.fetchmany(_BATCH_ROWS):
                    writer.writerows(rows)
        except sqlite3.Error as error:
            raise UnreadableTableError(shown_address, error) from error


class PostgresStore(_Database):
    """Tables and queries of PostgreSQL, which copies the result in a transaction that cannot write."""

    name = "postgresql"

    def read(self, address: Address, query: str, shown_address: str, path: Path) -> None:
        """Write the result of a query to a CSV file."""
        check_package("asyncpg", "asyncpg", "lake")
        with ThreadPoolExecutor(1) as thread:  # an event loop of its own, also where one runs
            thread.submit(asyncio.run, _copy_result(address.location, query, path)).result()


async def _copy_result(location: str, query: str, path: Path) -> None:
    import asyncpg

    try:
        connection = await asyncpg.connect(location)
    except (asyncpg.InvalidAuthorizationSpecificationError, OSError) as error:
        raise NoAccessError(location) from error
    except asyncpg.InvalidCatalogNameError as error:
        raise NoObjectError(location, "is no database") from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise UnreadableTableError(location, error) from error
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            statement = await connection.prepare(query)
            columns = ", ".join(map(_column, statement.get_attributes()))
            if not columns:
                raise QueryError(location, "it is not a SELECT")
            await connection.copy_from_query(
                f"SELECT {columns} FROM (\n{query}\n) AS q", output=path, format="csv", header=True
            )
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if isinstance(error, asyncpg.OperatorInterventionError | asyncpg.PostgresConnectionError):
            raise UnreadableTableError(location, error) from error
        raise QueryError(location, error) from error
    finally:
        await connection.close()


def _column(attribute: Any) -> str:
    """Return a column in the form that the CSV reader expects: booleans as true and false."""
    name = '"' + attribute.name.replace('"', '""') + '"'
    kind = attribute.type.name
    return f"{name}::text AS {name}" if kind == "bool" else name
