"""Flows in a process of one's own: within a running event loop, interrupted and called again, without a server left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.flows.python.shop import SCHEMA, shop_log

pytestmark = pytest.mark.slow
SECONDS = 900  # with a call that hangs

CELLS = """
import asyncio, json, os, signal, sys, time, warnings
import polars as pl
import shunter

LOG, SCHEMA = pl.read_parquet(sys.argv[1]), json.loads(sys.argv[2])

def cell():
    return shunter.select(LOG, SCHEMA, offers="local", probe_seconds=0).decision.placement.device

def stopped(*arguments):
    os.kill(os.getpid(), signal.SIGINT)  # what the stop button does
    time.sleep(60)

async def kernel():  # the cells of a notebook run within its event loop
    told = [cell()]
    from shunter.flows import selection
    from shunter.flows.python import session
    profile, selection.profile_hardware = selection.profile_hardware, stopped
    try:
        cell()
    except KeyboardInterrupt:
        told.append("interrupted")
    selection.profile_hardware = profile
    told += [cell(), [server.process.pid for server in session._servers]]
    print(json.dumps([*told, any(one[:4] == ("ignore", None, Warning, None) for one in warnings.filters)]))

asyncio.new_event_loop().run_until_complete(kernel())
"""


def test_cells_of_a_notebook_can_be_stopped_and_share_a_server_that_ends_with_it(
    furnished_home: Path, tmp_path: Path
) -> None:
    shop_log().to_parquet(tmp_path / "log.parquet")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", CELLS, str(tmp_path / "log.parquet"), json.dumps(SCHEMA)],
        env={**kept, "SHUNTER_HOME": str(furnished_home)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *cells, servers, is_silent = json.loads(done.stdout.splitlines()[-1])
    assert cells == ["cpu", "interrupted", "cpu"]
    assert len(servers) == 1
    assert not psutil.pid_exists(servers[0])
    assert not is_silent, "the warnings of the process are its own"
