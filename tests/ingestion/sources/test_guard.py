"""Paths that would leave the allowed folders, and logs that are larger than allowed."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import DataError, RequestError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.request import ingest_request
from shunter.ingestion.sources.guard import allowed_roots, check_paths, check_text
from shunter.ingestion.sources.open import open_source
from shunter.requests import TrainRequest
from shunter.settings import Settings
from tests.ingestion.conftest import Ingest


@pytest.fixture
def root(tmp_path: Path, criteo_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An allowed folder with a log in it, beside one that is not allowed."""
    root = tmp_path / "allowed"
    root.mkdir()
    (root / "log.tsv").write_bytes(criteo_file.read_bytes())
    (tmp_path / "allowed too much").mkdir()
    monkeypatch.setenv("SHUNTER_DATA_ROOTS", str(root))
    monkeypatch.chdir(root)
    return root


def opened(data: str, schema: str | None = None) -> tuple[Path, ...]:
    return open_source(data, None, schema, Settings().downloads_directory).paths


def test_files_within_the_roots_are_read(root: Path) -> None:
    for data in (str(root), str(root / "log.tsv"), "log.tsv", "./../allowed/log.tsv", f"{root}/*.tsv", "*.tsv"):
        assert opened(data), data
    assert opened("synthetic:100") == ()


@pytest.mark.parametrize(
    "data",
    [
        "../log.tsv",
        "{root}/../log.tsv",
        "{root}/sub/../../log.tsv",
        "/etc/passwd",
        "/etc/does-not-exist",
        "/",
        "~/log.tsv",
        "../*",
        "/etc/pass*",
        "{root}/../allowed too much/*",
        "{root} too much",
        "log.tsv,/etc/passwd",
        "{root}/../[a-z]*.tsv",
    ],
)
def test_paths_that_leave_the_roots_are_refused(root: Path, data: str) -> None:
    with pytest.raises(RequestError, match="is outside the folders that may be read"):
        opened(data.format(root=root))


def test_links_are_followed_before_it_is_judged(root: Path, criteo_file: Path) -> None:
    (root / "link.tsv").symlink_to(criteo_file)
    (root / "folder").symlink_to(criteo_file.parent)
    for data in ("link.tsv", "folder/log.tsv", "*.tsv", str(root), "folder", "folder/*"):
        with pytest.raises(RequestError, match="is outside"):
            opened(data)


def test_schema_is_guarded_like_the_data(root: Path) -> None:
    for schema in ("/etc/passwd", "../schema.yaml", "file:///etc/passwd"):
        for data in ("log.tsv", "synthetic:100"):
            with pytest.raises(RequestError, match="is outside"):
                opened(data, schema)


@pytest.mark.parametrize(
    "data",
    ["http://user:secret@example.org/a.tsv", "s3://bucket/key?token=secret-token", "other://host/file", "file:/etc"],
)
def test_unknown_addresses_and_those_with_secrets_are_refused_and_secrets_not_shown(data: str) -> None:
    with pytest.raises(RequestError) as caught:
        opened(data)
    assert "secret@" not in str(caught.value)
    assert "secret-token" not in str(caught.value)


@pytest.mark.parametrize("data", ["a\0b.tsv", "~nobody-of-that-name/log.tsv"])
def test_what_is_no_path_is_said(data: str) -> None:
    with pytest.raises(RequestError):
        opened(data)


def test_command_line_is_free_and_a_deployment_is_not(criteo_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shunter.tasks  # every flow does, which is what makes its request one of a deployment

    assert shunter.tasks.__doc__
    assert allowed_roots() is None
    assert opened(str(criteo_file)) == (criteo_file,)
    monkeypatch.setattr("prefect.runtime.deployment.id", "a-deployment", raising=False)
    assert allowed_roots() == (Settings().home / "data",)
    with pytest.raises(RequestError, match="SHUNTER_DATA_ROOTS"):
        ingest_request(TrainRequest(data=str(criteo_file)))
    monkeypatch.setenv("SHUNTER_DATA_ROOTS", f"/nowhere{os.pathsep}{criteo_file.parent}")
    assert opened(str(criteo_file)) == (criteo_file,)


SEGMENTS = st.lists(st.sampled_from(["..", ".", "a", "b", "log.tsv", "*", "[ab]", "sub dir", "~"]), max_size=6)


@settings(deadline=None)
@given(segments=SEGMENTS, absolute=st.booleans())
def test_no_path_of_any_shape_escapes(
    tmp_path_factory: pytest.TempPathFactory, segments: list[str], absolute: bool
) -> None:
    """Whatever passes lies below the root: judged by the system's own idea of where a path leads."""
    root = tmp_path_factory.getbasetemp() / "escape"
    root.mkdir(exist_ok=True)
    text = ("/" if absolute else "") + "/".join(segments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_DATA_ROOTS", str(root))
        patch.chdir(root)
        try:
            check_text(text)
            check_paths([Path(text)])
        except RequestError:
            return
        real = os.path.realpath(text)
        assert real == str(root) or real.startswith(f"{root}/")


@contextmanager
def limits(**values: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(f"SHUNTER_MAX_INPUT_{name.upper()}", str(value))
        yield


def test_more_rows_than_allowed_are_refused_in_every_format(
    ingest_file: Ingest, criteo_file: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], tmp_path: Path
) -> None:
    clicks.write_csv(tmp_path / "clicks.csv")
    clicks.write_parquet(tmp_path / "clicks.parquet")
    with limits(rows=150):
        for log, schema in (
            (criteo_file, None),
            (tmp_path / "clicks.csv", clicks_schema),
            (tmp_path / "clicks.parquet", clicks_schema),
            ("synthetic:1000", None),
        ):
            with pytest.raises(DataError, match="150"):
                ingest_file(log, schema)
    with limits(rows=200):
        assert ingest_file(tmp_path / "clicks.csv", clicks_schema)[0].rows == 200
    with limits(rows=150), pytest.raises(DataError, match="150"):
        ingest_file(tmp_path / "clicks.csv", clicks_schema)  # from the cache it is as many


def test_file_that_is_too_large_is_refused_before_it_is_read(ingest_file: Ingest, tmp_path: Path) -> None:
    huge = tmp_path / "huge.tsv"
    with huge.open("wb") as stream:
        stream.truncate(1 << 40)  # a hole: reading it would take hours
    with limits(bytes=1_000_000), pytest.raises(DataError, match="1,000,000"):
        ingest_file(huge)


def test_bytes_are_counted_decompressed(
    ingest_file: Ingest, criteo_file: Path, clicks: pl.DataFrame, clicks_schema: dict[str, Any], tmp_path: Path
) -> None:
    """A gzip bomb: a thousand times larger when it is unpacked."""
    bomb = tmp_path / "bomb.tsv.gz"
    with gzip.open(bomb, "wb") as stream:
        line = criteo_file.read_bytes().splitlines(keepends=True)[0]
        for _ in range(40):
            stream.write(line * 10_000)
    table = tmp_path / "bomb.csv.gz"
    with gzip.open(table, "wb") as stream:
        text = clicks.write_csv()
        stream.write(text.encode() + text.encode().split(b"\n", 1)[1] * 5_000)
    with limits(bytes=2_000_000):
        assert bomb.stat().st_size < 1_000_000
        for log, schema in ((bomb, None), (table, clicks_schema)):
            with pytest.raises(DataError, match="2,000,000"):
                ingest_file(log, schema)
    assert not list((tmp_path / "cache").glob("*/dataset.json"))


def test_parquet_is_counted_decoded(
    ingest_file: Ingest, clicks: pl.DataFrame, clicks_schema: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "bomb.parquet"
    pl.concat([clicks.with_columns(shop=pl.lit("x" * 1_000))] * 50).write_parquet(path)
    with limits(bytes=1_000_000):
        assert path.stat().st_size < 1_000_000
        with pytest.raises(DataError, match="1,000,000"):
            ingest_file(path, clicks_schema)


def test_limit_counts_all_files_together(criteo_file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "again.tsv"
    copy.write_bytes(criteo_file.read_bytes())
    size = criteo_file.stat().st_size
    with limits(bytes=size + 10):
        source = open_source(f"{criteo_file},{copy}", None, None, tmp_path)
        with pytest.raises(DataError, match="bytes, decompressed"):
            ingest_source(source, tmp_path / "cache", 0, 0.01)
