"""Requests that would stop a server or take its memory: refused, without a lost request of good clients."""

import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.faults.requests import ATTACKS, GoodClients, attack, liar, prefixes, zeros
from shunter.serving.errors import TooLargeRequestError
from shunter.serving.protocols.invocations import LEAST_BYTES, read_parquet
from shunter.serving.server import ScoreServer
from tests.serving.conftest import home_of_two_versions, running

CAME = {
    "JSON nested a million times": "400",
    "Parquet whose footer is said to be 4 GiB": "400",
    "JSON of rows that share no column": "400",
    "noise": "415",
    "a body of 64 MiB": "closed",
}
ROW = {"price": 1, "age": 2, "user": "007", "item": 3, "genres": "war"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[ScoreServer]:
    folder = tmp_path_factory.mktemp("served")
    rows = pd.DataFrame([{**ROW, "click": row % 2, "price": row} for row in range(1_000)])
    home = home_of_two_versions(folder, rows, empty_database, "shop", embedding_dim=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.delenv("SHUNTER_TRACKING_DIRECTORY", raising=False)
        with running(follow_seconds=0) as server:
            yield server
    shutil.rmtree(folder)


@pytest.mark.parametrize("what", ATTACKS)
def test_good_clients_are_answered_beside_it(what: str, server: ScoreServer) -> None:
    with GoodClients(server.port, ROW).asking() as good:
        found = attack(what, server.port, good, os.getpid())
    expected = "held" if "connections" in what else CAME.get(what, "413")
    assert found.came in {expected, "413" if expected == "closed" else expected}
    assert (found.good_requests_lost, good.lost) == (0, 0)
    assert found.good_requests > 0


def booleans() -> bytes:
    """Lists of 30 million truths, all of them alike."""
    values, file = pa.array(np.zeros(30_000_000, np.bool_)), io.BytesIO()
    lists = pa.table({"a": pa.FixedSizeListArray.from_arrays(values, 30_000)})
    pq.write_table(lists, file, use_dictionary=False, column_encoding="RLE", compression="zstd")
    return file.getvalue()


@pytest.mark.parametrize("bomb", [prefixes, liar, zeros, booleans])
def test_a_parquet_file_takes_no_more_than_it_may_before_it_is_refused(bomb: Callable[[], bytes]) -> None:
    body = bomb()
    assert len(body) < 1 << 20
    pool, proxy = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(proxy)
    try:
        with pytest.raises(TooLargeRequestError):
            read_parquet(body, 10_000)
    finally:
        pa.set_memory_pool(pool)
    assert proxy.max_memory() < 4 * LEAST_BYTES
