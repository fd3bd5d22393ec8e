"""Prefect's server on a PostgreSQL database, and addresses that are refused."""

import asyncio
import json
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import RequestError
from shunter.flows.command.daemons import start, stop
from shunter.flows.command.passwords import prefect_login
from shunter.flows.command.services import free_port, wait_until_ready
from shunter.operation.servers import (
    SQLITE,
    UnreachableDatabaseError,
    environment_of,
    prefect_service,
    resolve_database,
)
from shunter.secrets import without_secrets
from tests.private_postgres import USER, private_postgres


def test_unreachable_database_is_refused_without_its_password_and_is_not_remembered(shunter_home: Path) -> None:
    address = f"postgresql://shop:very-secret-word@127.0.0.1:{free_port()}/prefect"
    with pytest.raises(UnreachableDatabaseError) as refused:
        resolve_database(address)
    assert (refused.value.code, refused.value.exit_code) == ("unreachable-database", 8)
    assert "very-secret-word" not in f"{refused.value} {refused.value.address}"
    assert without_secrets("the word very-secret-word") == "the word ***"
    with pytest.raises(RequestError):
        resolve_database("mysql://127.0.0.1/prefect")
    assert resolve_database(None) is None
    assert environment_of(None) == {}


async def _fetch(address: str, sql: str) -> Any:
    import asyncpg

    connection = await asyncpg.connect(address)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


@pytest.mark.slow
def test_server_keeps_its_flows_in_postgresql(shunter_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with private_postgres() as address:
        monkeypatch.setenv("PGUSER", USER)
        resolve_database(address.replace("postgresql", "postgres", 1))
        kept = resolve_database(None)
        assert kept == address, "that of the last start"
        service = prefect_service(free_port(), kept)
        daemon, process = start(service)
        try:
            wait_until_ready(service, process, f"read {daemon.log}")
            login = b64encode(prefect_login().encode()).decode()
            headers = {"Content-Type": "application/json", "Authorization": f"Basic {login}"}
            token = urllib.request.Request(f"{daemon.url}/api/csrf-token?client=test", headers=headers)
            with urllib.request.urlopen(token) as answer:
                headers |= {"Prefect-Csrf-Token": json.load(answer)["token"], "Prefect-Csrf-Client": "test"}
            flow = urllib.request.Request(f"{daemon.url}/api/flows/", b'{"name": "shop"}', headers)
            with urllib.request.urlopen(flow) as answer:
                assert answer.status == 201
        finally:
            stop(daemon)
        assert asyncio.run(_fetch(address, "SELECT count(*) FROM flow WHERE name = 'shop'")) == 1
        assert resolve_database(SQLITE) is None
        assert resolve_database(None) is None
