"""Logs in object stores and on web servers."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shunter.errors import DataError, MissingPackageError, RequestError
from shunter.extensions.lake import copies
from shunter.extensions.lake.store_errors import ChangedObjectError, NoAccessError, NoObjectError, StoreError
from shunter.ingestion.cache import fingerprint_of, ingest_source
from shunter.ingestion.sources import guard
from shunter.ingestion.sources.addresses import path_beside
from shunter.ingestion.sources.guard import address_of
from shunter.ingestion.sources.open import find_files, open_source
from shunter.retraining.day_files import find_days
from shunter.settings import Settings
from tests.extensions.lake.conftest import Faults

SCHEMA = "label: click\nnumeric: [price]\ncategorical: [user, item]\n"


def log_of(rows: int, seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "click": random.integers(0, 2, rows),
            "price": random.random(rows),
            "user": random.integers(0, 50, rows),
            "item": random.integers(0, 20, rows),
        }
    )


def written(system: Any, address: str, content: bytes) -> None:
    system.pipe_file(address.removeprefix("s3://"), content)


def parquet(frame: pl.DataFrame, folder: Path) -> bytes:
    path = folder / "frame.parquet"
    frame.write_parquet(path)
    return path.read_bytes()


def test_log_in_a_bucket_gives_the_data_set_of_the_local_log(s3: Any, tmp_path: Path) -> None:
    frame = log_of(5000)
    (tmp_path / "local").mkdir()
    for number, part in enumerate(frame.iter_slices(2500)):
        part.write_parquet(tmp_path / "local" / f"part-{number}.parquet")
        written(s3, f"s3://logs/shop/part-{number}.parquet", (tmp_path / f"local/part-{number}.parquet").read_bytes())
    written(s3, "s3://logs/shop/_SUCCESS", b"")
    written(s3, "s3://logs/schema.yaml", SCHEMA.encode())
    (tmp_path / "schema.yaml").write_text(SCHEMA)

    near = open_source(str(tmp_path / "local"), None, str(tmp_path / "schema.yaml"), tmp_path)
    for data in ("s3://logs/shop", "s3://logs/shop/", "s3://logs/shop/*.parquet"):
        far = open_source(data, None, "s3://logs/schema.yaml", tmp_path)
        assert far.name == "shop"
        assert [path.name for path in far.paths] == ["part-0.parquet", "part-1.parquet"]
    near_data, _ = ingest_source(near, tmp_path / "near", 0, 0.0)
    far_data, _ = ingest_source(far, tmp_path / "far", 0, 0.0)
    assert far_data.fingerprint == near_data.fingerprint
    assert far_data.splits == near_data.splits
    assert "something-secret" not in "".join(map(str, Settings().objects_directory.rglob("*")))


def test_object_is_read_once_and_again_when_it_changes(s3: Any) -> None:
    written(s3, "s3://logs/day_1.csv", b"a,b\n1,2\n")
    [first] = find_files("s3://logs/day_1.csv")
    stamp = first.stat().st_mtime_ns
    [again] = find_files("s3://logs/day_1.csv")
    assert (again, again.stat().st_mtime_ns) == (first, stamp)
    written(s3, "s3://logs/day_1.csv", b"a,b\n3,4\n")
    [other] = find_files("s3://logs/day_1.csv")
    assert other != first
    assert (first.read_bytes(), other.read_bytes()) == (b"a,b\n1,2\n", b"a,b\n3,4\n")
    assert address_of(first) == address_of(other) == "s3://logs/day_1.csv"


def test_empty_objects_that_mark_folders_are_no_data(s3: Any) -> None:
    for key in ("shop/", "shop/day=1/"):
        s3.call_s3("put_object", Bucket="logs", Key=key, Body=b"")
    written(s3, "s3://logs/shop/day=1/a.csv", b"a\n1\n")
    for data in ("s3://logs/shop", "s3://logs/shop/", "s3://logs/shop/**"):
        assert [path.name for path in find_files(data)] == ["a.csv"]


def test_days_are_found_without_being_copied(s3: Any) -> None:
    for day in (1, 2, 3):
        written(s3, f"s3://logs/shop/2026-05-0{day}/clicks.csv", b"a\n1\n")
    found = find_days("s3://logs/shop/{date}/*.csv")
    assert [day.day for day in found.days] == [1, 2, 3]
    assert not any(path.exists() for paths in found.days.values() for path in paths)


@pytest.mark.parametrize("data", ["s3://nowhere/x.csv", "s3://logs/x.csv", "s3://logs/none/", "s3://logs/*.csv"])
def test_missing_bucket_or_object_is_refused(s3: Any, data: str) -> None:
    with pytest.raises(NoObjectError) as refused:
        find_files(data)
    assert (refused.value.code, refused.value.address) == ("no-object", data)


def test_address_without_credentials_is_refused(s3: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoAccessError) as refused:
        find_files("s3://logs/x.csv")
    assert refused.value.code == "no-access"


@pytest.mark.parametrize(
    "data",
    [
        "s3://key:secret-key@bucket/x.csv",
        "https://someone@host/x.csv",
        "https://host/x.csv?X-Amz-Signature=0123456789",
        "s3://bucket/../x.csv",
        "http://host/a/%2e%2e/x.csv",
        "s3://bucket/x.zip::file:///etc/passwd",
    ],
)
def test_secrets_and_detours_in_an_address_are_refused(data: str) -> None:
    with pytest.raises(RequestError) as refused:
        find_files(data)
    assert "secret-key" not in str(refused.value)
    assert "0123456789" not in str(refused.value)


def test_foreign_requests_read_allowed_addresses_alone(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written(s3, "s3://logs/open/a.csv", b"a\n1\n")
    written(s3, "s3://logs/closed/a.csv", b"a\n1\n")
    [closed] = find_files("s3://logs/closed/a.csv")
    monkeypatch.setattr(guard, "_FOREIGN", [lambda: True])
    for data in ("s3://logs/open/a.csv", "http://127.0.0.1/x.csv"):
        with pytest.raises(RequestError):
            find_files(data)
    monkeypatch.setenv("SHUNTER_DATA_ADDRESSES", "s3://logs/open, gs://other")
    [copy] = find_files("s3://logs/open/a.csv")
    guard.check_paths([copy])
    for data in ("s3://logs/closed/a.csv", "s3://logs/*/a.csv", "s3://logs/opened.csv", str(closed)):
        with pytest.raises(RequestError):
            find_files(data)
    with pytest.raises(RequestError):
        guard.check_paths([closed])
    with pytest.raises(RequestError):
        guard.open_checked(closed)


def test_faults_of_a_server_are_overcome(web: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_OBJECT_TIMEOUT_SECONDS", "0.5")
    monkeypatch.setattr("shunter.extensions.lake.objects._RANGE_BYTES", 1000)
    content = os.urandom(60_000)
    web.files["/logs/a.csv"] = content
    web.errors, web.cut, web.stalls = 0.05, 0.05, 1
    [copy] = find_files(f"{web.address}/logs/a.csv")
    assert copy.read_bytes() == content
    assert web.reads > 60
    assert web.stalls == 0


def test_server_without_ranges_is_read_whole(web: Faults) -> None:
    web.files["/a.csv"], web.has_ranges, web.cut = b"a,b\n" * 1000, False, 0.3
    [copy] = find_files(f"{web.address}/a.csv")
    assert copy.read_bytes() == web.files["/a.csv"]


def test_object_that_changes_under_the_reader_is_told_and_leaves_nothing(
    web: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.extensions.lake.objects._RANGE_BYTES", 1000)
    web.files["/a.csv"], web.changes_after = b"a,b\n" * 1000, 2
    with pytest.raises(ChangedObjectError) as told:
        find_files(f"{web.address}/a.csv")
    assert told.value.address == f"{web.address}/a.csv"
    assert not [path for path in Settings().objects_directory.rglob("*") if path.is_file()]


def test_refusals_and_lasting_faults_have_codes(web: Faults) -> None:
    web.files["/a.csv"] = b"a\n1\n"
    with pytest.raises(NoObjectError):
        find_files(f"{web.address}/b.csv")
    web.errors = 1.0
    with pytest.raises(StoreError) as failed:
        find_files(f"{web.address}/a.csv")
    assert failed.value.attempts == 6
    web.refuses = True
    reads = web.reads
    with pytest.raises(NoAccessError):
        find_files(f"{web.address}/a.csv")
    assert web.reads == reads + 1  # a refusal is not tried again


def test_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.registry.find_spec", lambda name: None if name == "s3fs" else True)
    monkeypatch.setattr("shunter.registry._is_installed", lambda package: True)
    with pytest.raises(MissingPackageError) as missing:
        find_files("s3://logs/a.csv")
    assert (missing.value.package, missing.value.extra) == ("s3fs", "lake")


def test_copies_are_bounded(web: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_OBJECT_CACHE_GIB", str(2500 / 2**30))
    found = {}
    for name in ("a", "b", "c"):
        web.files[f"/{name}.csv"] = name.encode() * 1000
        [found[name]] = find_files(f"{web.address}/{name}.csv")
        os.utime(found[name].parent, (0, {"a": 2, "b": 1, "c": 3}[name]))
    assert [name for name, path in found.items() if path.exists()] == ["a", "c"]
    web.files["/d.csv"] = b"d" * 3000
    with pytest.raises(DataError):
        find_files(f"{web.address}/d.csv")
    assert found["c"].exists()


def test_file_address_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert find_files(f"file://{tmp_path}/a.csv") == (tmp_path / "a.csv",)
    assert copies.copy_path("s3", "s3://b/k", "1", "k").parts[-5:] == ("s3", "b", "k", "@1", "k")


def test_server_without_tags_is_read_again_when_its_file_changes(web: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    web.has_tags, web.changed = False, "Mon, 02 Mar 2026 10:00:00 GMT"
    web.files["/a.csv"] = b"a\n1\n"
    assert find_files(f"{web.address}/a.csv")[0].read_bytes() == b"a\n1\n"
    web.files["/a.csv"], web.changed = b"a\n2\n", "Mon, 02 Mar 2026 10:00:01 GMT"
    assert find_files(f"{web.address}/a.csv")[0].read_bytes() == b"a\n2\n"
    web.changed = ""
    assert find_files(f"{web.address}/a.csv")[0].read_bytes() == b"a\n2\n"
    web.files["/a.csv"] = b"a\n3\n"
    monkeypatch.setattr("shunter.extensions.lake.objects._time_of_process", lambda: 1)  # as in another process
    assert find_files(f"{web.address}/a.csv")[0].read_bytes() == b"a\n3\n"


@pytest.mark.parametrize("data", ["/logs/", "/logs/*.csv"])
def test_folder_of_a_web_server_is_read(web: Faults, data: str) -> None:
    web.files["/logs/a.csv"], web.files["/logs/b.csv"] = b"a\n1\n", b"a\n2\n"
    web.files["/logs/"] = b'<a href="/logs/a.csv">a</a> <a href="b.csv">b</a> <a href="/other.csv">c</a>'
    assert [path.read_bytes() for path in find_files(web.address + data)] == [b"a\n1\n", b"a\n2\n"]


@pytest.mark.parametrize("name", ["../../../x/y.csv", "a/../y.csv", "a/.."])
def test_name_of_an_object_leaves_no_folder(name: str) -> None:
    with pytest.raises(DataError):
        copies.copy_path("s3", f"s3://logs/{name}", "1", name.rpartition("/")[2])


def test_folder_of_a_bucket_that_begins_like_a_version_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_OBJECT_CACHE_GIB", str(500 / 2**30))
    path = copies.copy_path("s3", "s3://logs/@archive/x.csv", "1", "x.csv")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 1000)
    for folder in path.parents[1:3]:
        os.utime(folder, (0, 1))  # long before its copy
    copies.make_room(0, "s3://logs/y.csv")
    assert path.exists()
    assert address_of(path) == "s3://logs/@archive/x.csv"


@pytest.mark.slow
def test_joined_tables_and_vectors_lie_in_the_bucket_too(s3: Any, tmp_path: Path) -> None:
    log_of(2000).write_csv(tmp_path / "log.csv")
    pl.DataFrame({"user": range(50), "age": range(20, 70)}).write_csv(tmp_path / "users.csv")
    pl.DataFrame({"item": range(20), "a": [0.5] * 20, "b": [0.25] * 20}).write_csv(tmp_path / "items.csv")
    places = {"log.csv": "shop", "users.csv": "shop", "items.csv": "vectors"}
    for name, folder in places.items():
        written(s3, f"s3://logs/{folder}/{name}", (tmp_path / name).read_bytes())
    found = []
    for data, vectors in ((tmp_path, tmp_path), ("s3://logs/shop", "s3://logs/vectors")):
        keys = {
            **{"label": "click", "numeric": ["price", "age"], "joins": [{"file": "users.csv", "key": "user"}]},
            "categorical": ["user", {"column": "item", "vectors": f"{vectors}/items.csv"}],
        }
        (schema := tmp_path / "schema.yaml").write_text(json.dumps(keys))
        found.append(source := open_source(f"{data}/log.csv", None, str(schema), tmp_path))
        found.append(ingest_source(source, tmp_path / "cache", 0, 0.0)[0])
    _, near, source, far = found
    assert far.splits == near.splits
    for array in ("train.dense.npy", "test.categorical.npy", "vectors/*.npy"):
        one, other = (next(data.directory.glob(array)) for data in (near, far))
        assert one.read_bytes() == other.read_bytes()
    assert path_beside(tmp_path / "log.csv", "s3://logs/vectors/items.csv").read_bytes()
    written(s3, "s3://logs/shop/users.csv", b"user,age\n1,30\n")
    assert fingerprint_of(source, 0, tmp_path / "memo.json") != far.fingerprint
    s3.rm("logs/shop/users.csv")
    with pytest.raises(NoObjectError):
        fingerprint_of(source, 0, tmp_path / "memo.json")
