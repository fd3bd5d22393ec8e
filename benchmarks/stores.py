"""Reading Parquet of an object store beside the same local files, and beside polars and DuckDB reading the store.

The store is an S3 server in a process of its own on this machine. The work is to read every value of a log of six
columns: ours copies the objects, decodes them, checks every row and hashes the categories; polars and DuckDB decode
and sum the columns. Each contestant runs in a fresh process, with a cold cache of copies; its fastest run counts.

    python -m benchmarks.stores [--quick]
"""

import json
import os
import re
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

SEED = 0
FILE_ROWS = 500_000
FULL = {"small": 1_000_000, "large": 4_000_000, "repeats": 3}
QUICK = {"small": 200_000, "large": 400_000, "repeats": 1}
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
                "user": random.integers(0, 10**7, count),
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
    """Read and parse each row, with the code that is measured."""
    os.environ["SHUNTER_HOME"] = str(folder)
    from shunter.ingestion.sources.open import open_source

    (folder / "schema.yaml").write_text(SCHEMA)
    source = open_source(data, None, str(folder / "schema.yaml"), folder)
    return sum(len(source.parse(chunk).labels) for chunk in source.chunks())


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


CONTESTANTS = {one.__name__: one for one in (shunter, polars, duckdb)}
LIBRARIES = {
    "shunter": ("shunter.ingestion.sources.open", "shunter.ingestion.sources.addresses"),
    "polars": ("polars",),
    "duckdb": ("duckdb",),
}


def run(name: str, data: str) -> None:
    """Run one contestant and print its figures."""
    for library in (*LIBRARIES[name], *(("s3fs",) if "://" in data else ())):
        import_module(library)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        rows = CONTESTANTS[name](data, Path(folder))
        seconds = time.perf_counter() - started
    print(json.dumps({"rows": rows, "wall_seconds": seconds, "peak_memory_mib": report.peak_memory_mib()}))


def main() -> None:
    """Measure and publish."""
    quick = report.parse_arguments(__doc__).quick
    sizes = QUICK if quick else FULL
    runs: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder, server():
        import fsspec

        system = fsspec.filesystem("s3")
        system.mkdir("logs")
        for size in ("small", "large"):
            generate(Path(folder) / size, sizes[size])
            system.put(str(Path(folder) / size), f"logs/{size}", recursive=True)
        cases = {f"{name}_store": (name, "s3://logs/large") for name in CONTESTANTS}
        cases |= {f"{name}_local": (name, f"{folder}/large") for name in CONTESTANTS}
        for _ in range(sizes["repeats"]):
            for case, given in cases.items():
                runs.setdefault(case, []).append(report.measure("benchmarks.stores", *given))
        small = report.measure("benchmarks.stores", "shunter", "s3://logs/small")
    assert all(one["rows"] == sizes["large"] for of_case in runs.values() for one in of_case)
    seconds = {case: min(one["wall_seconds"] for one in of_case) for case, of_case in runs.items()}
    memory = {case: max(one["peak_memory_mib"] for one in of_case) for case, of_case in runs.items()}
    rates = {case: sizes["large"] / one for case, one in seconds.items()}
    rows = [(case, f"{rates[case]:,.0f}", f"{seconds[case]:.1f}", f"{memory[case]:,.0f}") for case in runs]
    report.table(f"Reading {sizes['large']:,} rows of Parquet", ("contestant", "rows/s", "seconds", "peak MiB"), rows)
    headline = {
        "store_to_local": round(seconds["shunter_local"] / seconds["shunter_store"], 3),
        **{f"rows_per_second_{case}": round(rate) for case, rate in rates.items()},
        "peak_memory_mib": round(memory["shunter_store"]),
        "peak_memory_growth": round(memory["shunter_store"] / small["peak_memory_mib"], 3),
    }
    report.publish("stores", headline, {"rows": sizes, "runs": runs, "small": small}, seeds=[SEED], quick=quick)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(*sys.argv[1:])
    else:
        main()
