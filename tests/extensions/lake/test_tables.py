"""Versions of tables of data lakes, and results of databases."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shunter.errors import RequestError
from shunter.extensions.lake.databases import QueryError
from shunter.extensions.lake.store_errors import NoAccessError, NoObjectError
from shunter.extensions.lake.tables import UnreadableTableError
from shunter.ingestion.request import ingest_request
from shunter.ingestion.sources import guard
from shunter.ingestion.sources.addresses import versions_of
from shunter.ingestion.sources.open import find_files, name_of
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tracking.convention import data_params
from tests.extensions.lake.test_objects import SCHEMA, log_of


def content(data: str) -> list[tuple[Any, ...]]:
    [path] = find_files(data)
    return (pl.read_parquet if path.suffix == ".parquet" else pl.read_csv)(path).rows()


def test_version_of_a_delta_table_is_read_tracked_and_read_again(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table, frame = tmp_path / "clicks", log_of(400)
    deltalake.write_deltalake(table, frame.to_arrow(), partition_by=["item"])
    deltalake.write_deltalake(table, log_of(100, seed=1).to_arrow(), mode="append")
    (tmp_path / "schema.yaml").write_text(SCHEMA)

    request = TrainRequest(data=f"delta:{table}", schema_file=str(tmp_path / "schema.yaml"))
    newest, _ = ingest_request(request)
    assert (newest.rows, newest.name, newest.versions) == (500, "clicks", (f"delta:{table}@1",))
    assert data_params(newest)["data.versions"] == f"delta:{table}@1"
    first, _ = ingest_request(request.model_copy(update={"data": f"delta:{table}@0"}))
    assert first.rows == 400
    again, report = ingest_request(request.model_copy(update={"data": newest.versions[0]}))
    assert (again.fingerprint, report.reused) == (newest.fingerprint, True)

    with pytest.raises(NoObjectError) as gone:
        find_files(f"delta:{table}@7")
    assert gone.value.code == "no-object"
    with pytest.raises(NoObjectError):
        find_files(f"delta:{tmp_path}/none")
    with pytest.raises(RequestError):
        find_files(f"delta:{table}@yesterday")


def test_table_that_is_made_anew_is_read_anew(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = tmp_path / "clicks"
    for rows in ([(1,)], [(2,)]):
        shutil.rmtree(table, ignore_errors=True)
        deltalake.write_deltalake(table, pl.DataFrame(rows, schema=["a"], orient="row").to_arrow())
        [path] = find_files(f"delta:{table}")
        assert (pl.read_parquet(path).rows(), name_of(f"delta:{table}", (path,))) == (rows, "clicks")
        assert versions_of([path]) == (f"delta:{table}@0",)


def test_unreadable_partition_is_told_and_nothing_of_it_stays(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = tmp_path / "clicks"
    deltalake.write_deltalake(table, log_of(100).to_arrow(), partition_by=["item"])
    next(table.rglob("item=3/*.parquet")).write_bytes(b"PAR1 is no such file")
    with pytest.raises(UnreadableTableError) as told:
        find_files(f"delta:{table}")
    assert told.value.address == f"delta:{table}"
    assert not [path for path in Settings().objects_directory.rglob("*") if path.is_file()]


def test_delta_table_in_a_bucket(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deltalake = pytest.importorskip("deltalake")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    deltalake.write_deltalake("s3://logs/clicks", log_of(100).to_arrow())
    [path] = find_files("delta:s3://logs/clicks@0")
    assert pl.read_parquet(path).height == 100
    assert versions_of([path]) == ("delta:s3://logs/clicks@0",)
    monkeypatch.setattr(guard, "_FOREIGN", [lambda: True])
    with pytest.raises(RequestError):
        find_files("delta:s3://logs/clicks")


def test_snapshot_of_an_iceberg_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", __import__("pyiceberg.utils.config").utils.config.Config())
    catalog = catalogs.load_catalog("local")
    catalog.create_namespace("shop")
    frame = log_of(100).to_arrow()
    table = catalog.create_table("shop.clicks", schema=frame.schema)
    table.append(frame)
    first = table.current_snapshot().snapshot_id
    table.append(frame)
    for data, rows in (("iceberg://local/shop.clicks", 200), (f"iceberg://local/shop.clicks@{first}", 100)):
        [path] = find_files(data)
        assert (pl.read_parquet(path).height, name_of(data, (path,))) == (rows, "clicks")
    assert versions_of([path]) == (f"iceberg://local/shop.clicks@{first}",)
    for data in ("iceberg://local/shop.clicks@12", "iceberg://local/shop.none", "iceberg://local/none.clicks"):
        with pytest.raises(NoObjectError):
            find_files(data)


def test_duckdb_is_read_and_neither_written_nor_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE clicks AS SELECT * FROM (VALUES ('a', 1, true), ('b', 2, false)) t(d, n, b)")
    assert content(f"duckdb:{path}#clicks") == [("a", 1, True), ("b", 2, False)]
    assert content(f"duckdb:{path}#SELECT n, d FROM clicks WHERE n > 1;") == [(2, "b")]
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for query in (
        "DROP TABLE clicks",
        "SELECT 1; DROP TABLE clicks",
        f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
        f"COPY clicks TO '{tmp_path}/out.csv'",
        "SELECT * FROM nothing",
        "no query",
    ):
        with pytest.raises(QueryError) as refused:
            find_files(f"duckdb:{path}#{query}")
        assert refused.value.code == "refused-query"
    assert not (tmp_path / "out.csv").exists()
    with pytest.raises(UnreadableTableError):
        find_files(f"duckdb:{path}#SELECT INTERVAL 1 DAY AS span")  # which Parquet does not hold
    with pytest.raises(NoObjectError):
        find_files(f"duckdb:{tmp_path}/none.db#clicks")
    assert not (tmp_path / "none.db").exists()
    assert not list(Settings().objects_directory.rglob("@.*"))
    monkeypatch.setattr(guard, "_FOREIGN", [lambda: True])
    monkeypatch.setenv("SHUNTER_DATA_ROOTS", str(tmp_path))
    assert len(find_files(f"duckdb:{path}#clicks")) == 1
    with pytest.raises(RequestError):
        find_files(f"duckdb:{path}#SELECT n FROM clicks")


def test_sqlite_is_read_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE clicks (d TEXT, n INTEGER)")
        connection.executemany("INSERT INTO clicks VALUES (?, ?)", [("a, b", 1), (None, 2)])
    connection.close()
    assert content(f"sqlite:{path}#clicks") == [("a, b", 1), (None, 2)]
    assert content(f"sqlite:{path}#SELECT sum(n) AS total FROM clicks") == [(3,)]
    for query in (
        "DELETE FROM clicks",
        "PRAGMA writable_schema = 1",
        f"ATTACH '{tmp_path}/other.db' AS other",
        "SELECT 1; SELECT 2",
        "SELECT nothing FROM clicks",
    ):
        with pytest.raises(QueryError):
            find_files(f"sqlite:{path}#{query}")
    assert not (tmp_path / "other.db").exists()
    (tmp_path / "text.db").write_text("no database" * 100)
    with pytest.raises(UnreadableTableError):
        find_files(f"sqlite:{tmp_path}/text.db#clicks")


@pytest.mark.parametrize("address", ["127.0.0.1:port/shop", "127.0.0.1:1/shop?sslmode=nonsense"])
def test_wrong_address_of_postgresql_has_a_code(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("asyncpg")
    with pytest.raises(UnreadableTableError):
        find_files(f"postgresql://{address}#clicks")
    monkeypatch.setattr(guard, "_FOREIGN", [lambda: True])
    monkeypatch.setenv("SHUNTER_DATA_ADDRESSES", "postgresql://127.0.0.1:1")
    with pytest.raises(RequestError):
        find_files("postgresql://127.0.0.1:1/shop?passfile=/home/other/.pgpass#clicks")


def test_postgresql_is_read_and_not_written(postgres: str) -> None:
    import asyncio

    import asyncpg

    async def execute(sql: str) -> Any:
        connection = await asyncpg.connect(postgres)
        try:
            return await connection.fetch(sql)
        finally:
            await connection.close()

    asyncio.run(execute("CREATE TABLE clicks AS SELECT * FROM (VALUES ('a', 1, true), ('b', 2, null)) t(d, n, b)"))
    asyncio.run(execute("CREATE SEQUENCE numbers"))
    assert content(f"{postgres}#clicks") == [("a", 1, True), ("b", 2, None)]
    assert content(f"{postgres}#public.clicks") == content(f"{postgres}#clicks")
    assert content(f"{postgres}#SELECT n FROM clicks WHERE d = 'b' -- the second") == [(2,)]
    for query in (
        "DELETE FROM clicks",
        "DELETE FROM clicks RETURNING n",
        "WITH gone AS (DELETE FROM clicks RETURNING n) SELECT * FROM gone",
        "SELECT nextval('numbers')",
        "SELECT 1; DROP TABLE clicks",
        "SELECT 1) TO STDOUT; DROP TABLE clicks; --",
        "SELECT * FROM nothing",
    ):
        with pytest.raises(QueryError):
            find_files(f"{postgres}#{query}")
    assert len(asyncio.run(execute("SELECT * FROM clicks"))) == 2
    with pytest.raises(NoObjectError):
        find_files(f"{postgres.removesuffix('postgres')}none#clicks")
    with pytest.raises(NoAccessError):
        find_files("postgresql://127.0.0.1:1/none#clicks")
    with pytest.raises(RequestError) as refused:
        find_files("postgresql://reader:some-secret@127.0.0.1/none#clicks")
    assert "some-secret" not in str(refused.value)
    with pytest.raises(RequestError):
        find_files(postgres)
