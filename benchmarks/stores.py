"""Ingestion of Parquet of an object store beside the same local files, and beside polars and DuckDB reading them.

The store is an S3 server in a process of its own on this machine. Ours does with its defaults what `shunter train` does
before it trains: it copies the objects, checks every row, fits the encoder and writes the arrays. `read` is its reading
alone: copies, and every row decoded, checked and hashed. Polars and DuckDB decode and sum the columns. Each contestant
runs in a fresh process, with a cold cache of copies; its fastest run counts. DuckDB reads the store through fsspec.

The memory is compared at 4 and at 100 million rows, or as many as `--millions` says. The values of the columns are as
many at either size, since a vocabulary is held in memory. A quick run has a tenth of a million rows, and four times as
many. 100 million take about ten minutes on two cores, 12 GB of disk and 4 GB of memory for the server.

    python -m benchmarks.stores [--quick] [--millions 100]
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks import report
from benchmarks.ingest import PeakMemory
from shunter.hardware.meters.process_time import ProcessTime

SEED = 0
FILE_ROWS = 500_000
FULL = {"main": 4_000_000, "repeats": 3}
QUICK = {"main": 100_000, "large": 400_000, "repeats": 1}
SCHEMA = "label: click\nnumeric: [price, age]\ncategorical: [user, item, shop]\n"


def generate(folder: Path, rows: int) -> None:
    """Write a log in files of equal length."""
    import numpy as np
    import polars as pl

    random = np.random.default_rng(SEED)
    folder.mkdir()
    for number in range(-(-rows // FILE_ROWS)):
        count = min(FILE_ROWS, rows - number * FILE_ROWS)
        pl.DataFrame(
            {
                "click": random.integers(0, 2, count, np.int8),
                "price": random.random(count),
                "age": random.integers(18, 90, count),
                "user": random.integers(0, 500_000, count),
                "item": [f"item-{one}" for one in random.integers(0, 10**5, count)],
                "shop": random.integers(0, 500, count),
            }
        ).write_parquet(folder / f"part-{number}.parquet", row_group_size=100_000)


@contextmanager
def server() -> Iterator[None]:
    """Run an S3 server, configured as users configure it."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    try:
        found = next(match for line in process.stderr if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
        Thread(target=process.stderr.read, daemon=True).start()
        os.environ |= {"AWS_ENDPOINT_URL": found[0], "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret"}
        os.environ |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
        yield
    finally:
        process.terminate()
        process.wait()


def shunter(data: str, folder: Path) -> int:
    """Ingest with the code that is measured."""
    from shunter.ingestion.request import ingest_request
    from shunter.requests import TrainRequest

    dataset, _ = ingest_request(TrainRequest(data=data, schema_file=_schema(folder)))
    return dataset.rows


def read(data: str, folder: Path) -> int:
    """Read and parse each row, with the code that is measured."""
    from shunter.ingestion.sources.open import open_source
    from shunter.parallel import ordered_map

    source = open_source(data, None, _schema(folder), folder)
    return sum(len(batch.labels) for batch in ordered_map(source.parse, source.chunks()))


def _schema(folder: Path) -> str:
    os.environ["SHUNTER_HOME"] = str(folder)
    path = folder / "schema.yaml"
    path.write_text(SCHEMA)
    return str(path)


def polars(data: str, folder: Path) -> int:
    """Sum every column by polars' streaming engine."""
    import polars as pl

    del folder
    options = {"aws_endpoint_url": os.environ["AWS_ENDPOINT_URL"], "aws_allow_http": "true"}
    frame = pl.scan_parquet(f"{data}/*.parquet", storage_options=options if "://" in data else None)
    sums = [pl.col(name).sum() for name in ("click", "price", "age", "user", "shop")]
    found = frame.select(pl.len(), *sums, pl.col("item").str.len_bytes().sum()).collect(engine="streaming")
    return int(found["len"][0])


def duckdb(data: str, folder: Path) -> int:
    """Sum every column by DuckDB, which reads the store through fsspec."""
    import duckdb as library
    import fsspec

    del folder
    with library.connect() as connection:
        if "://" in data:
            connection.register_filesystem(fsspec.filesystem("s3"))
        query = "SELECT count(*), sum(click), sum(price), sum(age), sum(user), sum(shop), sum(length(item))"
        rows = connection.sql(f"{query} FROM read_parquet('{data}/*.parquet')").fetchall()
    return int(rows[0][0])


CONTESTANTS = {one.__name__: one for one in (shunter, read, polars, duckdb)}
LIBRARIES = {
    "shunter": ("shunter.ingestion.request",),
    "read": ("shunter.ingestion.sources.open",),
    "polars": ("polars",),
    "duckdb": ("duckdb",),
}


def run(name: str, data: str) -> None:
    """Run one contestant and print its figures."""
    for library in (*LIBRARIES[name], *(("s3fs",) if "://" in data else ())):
        import_module(library)
    with tempfile.TemporaryDirectory() as folder, PeakMemory() as memory:
        started = time.perf_counter()
        rows = CONTESTANTS[name](data, Path(folder))
        seconds = time.perf_counter() - started
    peak = max(report.peak_memory_mib(), memory.mib)
    print(json.dumps({"rows": rows, "wall_seconds": seconds, "peak_memory_mib": peak}))


def measured(name: str, data: str) -> dict[str, Any]:
    """Measure one contestant, and the share of the processors that other programs take meanwhile."""
    used, started = ProcessTime(), time.perf_counter()
    busy, own = used.machine_seconds(), used.process_seconds()
    result = report.measure("benchmarks.stores", name, data)
    others = used.machine_seconds() - busy - (used.process_seconds() - own)
    seconds = (time.perf_counter() - started) * (os.cpu_count() or 1)
    return {**result, "others_share": max(0.0, others) / seconds}


def main() -> None:
    """Measure and publish."""
    arguments = report.parse_arguments(__doc__, _add_millions)
    quick = arguments.quick
    sizes = QUICK if quick else FULL | {"large": arguments.millions * 1_000_000}
    runs: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder, server():
        import fsspec

        system = fsspec.filesystem("s3")
        system.mkdir("logs")
        for size in ("main", "large"):
            generate(local := Path(folder) / size, sizes[size])
            system.put(str(local), f"logs/{size}", recursive=True)
        shutil.rmtree(local)  # the large one is read from the store alone
        cases = {f"{name}_store": (name, "s3://logs/main") for name in CONTESTANTS}
        cases |= {f"{name}_local": (name, f"{folder}/main") for name in CONTESTANTS}
        for _ in range(sizes["repeats"]):
            for case, given in cases.items():
                runs.setdefault(case, []).append(measured(*given))
        large = {name: measured(name, "s3://logs/large") for name in CONTESTANTS}
    assert all(one["rows"] == sizes["main"] for of_case in runs.values() for one in of_case)
    assert all(one["rows"] == sizes["large"] for one in large.values())
    headline = _headline(sizes, runs, large)
    rows = [
        (case, f"{headline[f'rows_per_second_{case}']:,}", f"{max(one['peak_memory_mib'] for one in of_case):,.0f}")
        for case, of_case in runs.items()
    ]
    report.table(f"{sizes['main']:,} rows of Parquet", ("contestant", "rows/s", "peak MiB"), rows)
    report.publish("stores", headline, {"rows": sizes, "runs": runs, "large": large}, seeds=[SEED], quick=quick)


def _add_millions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--millions", type=int, default=100, help="millions of rows of the larger log")


def _headline(
    sizes: dict[str, int], runs: dict[str, list[dict[str, Any]]], large: dict[str, dict[str, Any]]
) -> dict[str, float]:
    seconds = {case: min(one["wall_seconds"] for one in of_case) for case, of_case in runs.items()}
    memory = {name: max(one["peak_memory_mib"] for one in runs[f"{name}_store"]) for name in CONTESTANTS}
    every = [*large.values(), *(one for of_case in runs.values() for one in of_case)]
    return {
        "store_to_local": round(seconds["shunter_local"] / seconds["shunter_store"], 3),
        "store_to_local_read": round(seconds["read_local"] / seconds["read_store"], 3),
        **{f"rows_per_second_{case}": round(sizes["main"] / taken) for case, taken in seconds.items()},
        **{f"rows_per_second_{name}_large": round(sizes["large"] / one["wall_seconds"]) for name, one in large.items()},
        **{f"peak_memory_mib_{name}": round(mib) for name, mib in memory.items()},
        **{f"peak_memory_mib_{name}_large": round(one["peak_memory_mib"]) for name, one in large.items()},
        "large_rows": sizes["large"],
        "peak_memory_growth": round(large["shunter"]["peak_memory_mib"] / memory["shunter"], 3),
        "others_share": round(max(one["others_share"] for one in every), 3),
    }


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in CONTESTANTS:
        run(*sys.argv[1:])
    else:
        main()
