"""Prefect's server on SQLite without answers 503 under a second writer.

Prefect begins a transaction as a reader, which becomes a writer at its first write. If another connection has written
in between, SQLite refuses that write at once, whatever the timeout. Prefect then answers 503, which its pages show to
the user. A transaction that begins as a writer waits for its turn instead.

As a module, this is the command `prefect` with such a database.
"""

from typing import Any


def begin_as_writer() -> None:
    """Make each transaction of Prefect's server in this process begin as a writer, if its database is SQLite."""
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    def begin_transaction(self: AioSqliteConfiguration, session: Any, with_for_update: bool = False) -> Any:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_transaction


if __name__ == "__main__":
    from prefect.cli import app

    begin_as_writer()
    app()
