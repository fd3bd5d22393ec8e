"""Tables and results of databases are written while they are read, in pieces of a bounded number of rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from shunter.errors import ShunterError
from shunter.extensions.lake import databases, tables
from shunter.ingestion.sources.addresses import Address
from shunter.ingestion.sources.open import find_files
from tests.extensions.lake.test_objects import log_of

ROWS, FILES = 300_000, 4
GROUP_ROWS = 1_000


@pytest.fixture
def written_at_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Return a function that reads a query whose last row is an error, and returns the bytes written before."""

    def read(data: str) -> int:
        sizes: list[int] = []

        def store(kind: str, location: str, name: str, write: Callable[[Path], None]) -> Path:
            path = tmp_path / "result" / name
            try:
                write(path)
            finally:
                sizes.append(path.stat().st_size)
            return path

        (tmp_path / "result").mkdir()
        monkeypatch.setattr(databases, "store_result", store)
        with pytest.raises(ShunterError):
            find_files(data)
        return sizes[0]

    return read


def test_results_are_written_before_the_last_row_is_known(
    tmp_path: Path, written_at_fault: Callable[[str], int]
) -> None:
    duckdb = pytest.importorskip("duckdb")
    duckdb.connect(path := tmp_path / "shop.duckdb").close()
    last = f"CASE WHEN n < {20 * ROWS} THEN n ELSE error('the end') END"  # more rows than DuckDB computes in advance
    assert written_at_fault(f"duckdb:{path}#SELECT {last} AS n FROM range({40 * ROWS}) t(n)") > ROWS


def test_rows_of_sqlite_are_written_before_the_last_is_known(
    tmp_path: Path, written_at_fault: Callable[[str], int]
) -> None:
    (path := tmp_path / "shop.db").touch()
    rows = f"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n <= {ROWS})"
    last = f"CASE WHEN n < {ROWS} THEN n ELSE abs(-9223372036854775808) END"
    assert written_at_fault(f"sqlite:{path}#{rows} SELECT {last} AS n FROM t") > ROWS


def test_rows_of_postgresql_are_written_before_the_last_is_known(
    postgres: str, written_at_fault: Callable[[str], int]
) -> None:
    last = f"CASE WHEN n < {ROWS} THEN n ELSE 1 / (n - n) END"
    assert written_at_fault(f"{postgres}#SELECT {last} AS n FROM generate_series(1, {ROWS}) t(n)") > ROWS


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the rows of each row group, in the order of writing; small groups."""
    found: list[int] = []

    class Writer(pa_parquet.ParquetWriter):
        def write_table(self, table: pa.Table, *arguments: Any, **options: Any) -> None:
            found.append(table.num_rows)
            super().write_table(table, *arguments, **options)

    monkeypatch.setattr(tables, "_GROUP_ROWS", GROUP_ROWS)
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", Writer)
    return found


def test_files_of_iceberg_are_read_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[int]
) -> None:
    catalogs, scans = pytest.importorskip("pyiceberg.catalog"), pytest.importorskip("pyiceberg.io.pyarrow")
    catalog = catalogs.load_catalog(
        "here", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    catalog.create_namespace("shop")
    frame = log_of(GROUP_ROWS).to_arrow()
    table = catalog.create_table("shop.clicks", schema=frame.schema)
    for _ in range(FILES):
        table.append(frame)
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda _: catalog)
    read = scans._task_to_record_batches

    def counted(*arguments: Any) -> Any:
        events.append(0)
        return read(*arguments)

    monkeypatch.setattr(scans, "_task_to_record_batches", counted)
    events.clear()
    [path] = tables.IcebergStore().find(Address("iceberg", "iceberg://here/shop.clicks"))
    assert events == [0, GROUP_ROWS] * FILES
    assert pa_parquet.ParquetFile(path).metadata.num_rows == FILES * GROUP_ROWS


def test_rows_of_delta_lake_are_written_in_groups(tmp_path: Path, events: list[int]) -> None:
    deltalake = pytest.importorskip("deltalake")
    for _ in range(FILES):
        deltalake.write_deltalake(tmp_path / "clicks", log_of(20 * GROUP_ROWS).to_arrow(), mode="append")
    events.clear()
    find_files(f"delta:{tmp_path}/clicks")
    assert sum(events) == FILES * 20 * GROUP_ROWS
    assert max(events) < 10 * GROUP_ROWS  # of a batch of DataFusion, which holds 8,192 rows
