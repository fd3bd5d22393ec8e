"""What newer releases of the pinned libraries broke without a word: see requirements/direct.in.

That a cron deployment gets its runs is tested with the real server in tests/flows/test_services.py.
"""

import asyncio


def test_prefect_server_answers_filter_queries(prefect_server: None) -> None:
    """From fastapi 0.151 every filter endpoint answers 422."""
    from prefect import get_client

    async def read() -> list[object]:
        async with get_client() as client:
            return [*await client.read_flow_runs(limit=1), *await client.read_flows(limit=1)]

    assert isinstance(asyncio.run(read()), list)
