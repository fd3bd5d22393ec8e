"""Prefect's server on SQLite, changed so that concurrent writers do not cause 503 answers.

Prefect begins a transaction as a reader, which becomes a writer at its first write. If another connection has written
in between, SQLite refuses the write at once, regardless of the timeout. Prefect then answers 503, which its pages show
to the user. A transaction that begins as a writer waits for the other writer instead.

Run as a module, this is the command `prefect` with the changed database.
"""

from typing import Any


def begin_as_writer() -> None:
    """Make each transaction of Prefect's server in this process begin as a writer, if the database is SQLite."""
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    def begin_transaction(self: AioSqliteConfiguration, session: Any, with_for_update: bool = False) -> Any:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_transaction


if __name__ == "__main__":
    from prefect.cli import app

    begin_as_writer()
    app()
