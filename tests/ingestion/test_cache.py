"""What is built once, what is built again, and what a failure leaves behind."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shunter.errors import DataError
from shunter.ingestion import cache
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.synthetic import SyntheticSource
from shunter.settings import PROJECT_ROOT
from tests.ingestion.conftest import Ingest


def data_sets(directory: Path) -> list[str]:
    """Everything in the cache but its locks and its memory of hashes."""
    return sorted(path.name for path in directory.iterdir() if path.name not in {"locks", "file-hashes.json"})


def test_same_content_is_reused_whatever_its_name(criteo_file: Path, ingest_file: Ingest) -> None:
    first, report = ingest_file(criteo_file)
    assert not report.reused

    again, report = ingest_file(criteo_file)
    assert report.reused
    assert again == first

    renamed = criteo_file.rename(criteo_file.with_name("other.tsv"))
    found, report = ingest_file(renamed)
    assert report.reused
    assert (found.name, found.directory) == ("other", first.directory)


def test_anything_that_changes_the_arrays_builds_again(
    criteo_file: Path, ingest_file: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = {ingest_file(criteo_file)[0].directory}

    def built(*arguments: Any, **options: Any) -> None:
        dataset, report = ingest_file(*arguments, **options)
        assert not report.reused
        assert dataset.directory not in directories
        directories.add(dataset.directory)

    built(criteo_file, seed=1)
    built(criteo_file, {"vocabulary": {"min_count": 3}})
    monkeypatch.setattr(cache, "CODE_VERSION", cache.CODE_VERSION + 1)
    built(criteo_file)
    content = criteo_file.read_bytes()
    stamp = criteo_file.stat()
    criteo_file.write_bytes(content.replace(b"\t1\t", b"\t2\t", 1))
    # The same size, and changed a nanosecond later.
    os.utime(criteo_file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    built(criteo_file)


def test_the_same_input_gives_the_same_bytes(criteo_file: Path, tmp_path: Path, ingest_file: Ingest) -> None:
    first, _ = ingest_file(criteo_file)
    kept = {path.name: path.read_bytes() for path in first.directory.rglob("*") if path.is_file()}
    (first.directory / "dataset.json").unlink()

    second, report = ingest_file(criteo_file)

    assert not report.reused
    assert {path.name: path.read_bytes() for path in second.directory.rglob("*") if path.is_file()} == kept
    assert not [name for name in kept if name.endswith(".spill")]


def test_failure_leaves_nothing(tmp_path: Path, ingest_file: Ingest) -> None:
    path = tmp_path / "log.tsv"
    path.write_text(("no label" + "\t" * 39 + "\n") * 10)

    with pytest.raises(DataError, match=r"100\.0%"):
        ingest_file(path)

    assert data_sets(tmp_path / "cache") == []


def test_threshold_holds_for_a_cached_data_set_too(criteo_file: Path, ingest_file: Ingest) -> None:
    with criteo_file.open("a") as stream:
        stream.write("one bad line\n" * 20)
    dataset, _ = ingest_file(criteo_file, max_bad_share=0.05)
    assert dataset.quarantined_rows == 20

    with pytest.raises(DataError, match=r"2\.0%"):
        ingest_file(criteo_file, max_bad_share=0.01)


def test_source_that_changes_while_it_is_read_is_refused(
    criteo_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ingest_file: Ingest
) -> None:
    really_build = cache.build

    def build_while_written_to(*arguments: Any, **options: Any) -> Any:
        dataset = really_build(*arguments, **options)
        with criteo_file.open("a") as stream:
            stream.write("late\n")
        return dataset

    monkeypatch.setattr(cache, "build", build_while_written_to)
    with pytest.raises(DataError, match="changed while it was read"):
        ingest_file(criteo_file)
    assert data_sets(tmp_path / "cache") == []


def test_unwritable_cache_is_told(tmp_path: Path) -> None:
    # A file where the folder is to be built: not even root may write below it.
    fingerprint = cache.fingerprint_of(SyntheticSource(500), 0, tmp_path / cache.MEMO)
    (tmp_path / f".{fingerprint[:16]}.building").touch()

    with pytest.raises(DataError, match="SHUNTER_HOME"):
        ingest_source(SyntheticSource(500), tmp_path, 0, 0.01)


def test_killed_build_is_not_taken_for_finished(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    code = (
        "from pathlib import Path\n"
        "from shunter.ingestion.cache import ingest_source\n"
        "from shunter.ingestion.sources.synthetic import SyntheticSource\n"
        f"ingest_source(SyntheticSource(1_000_000_000), Path({str(directory)!r}), 0, 0.01)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=PROJECT_ROOT)
    deadline = time.monotonic() + 60
    while not list(directory.glob(".*.building/*.spill")):
        assert time.monotonic() < deadline, "the build did not start"
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()

    [building] = data_sets(directory)
    assert building.startswith(".")
    # The next build of the same data clears it away; a small one must do here.
    fingerprint = cache.fingerprint_of(SyntheticSource(500), 0, directory / "file-hashes.json")
    (directory / building).rename(directory / f".{fingerprint[:16]}.building")
    dataset, report = ingest_source(SyntheticSource(500), directory, 0, 0.01)
    assert not report.reused
    assert data_sets(directory) == [dataset.directory.name]


def test_second_ingestion_waits_for_the_first_and_reuses_its_work(tmp_path: Path) -> None:
    def ingest(_: int) -> bool:
        return ingest_source(SyntheticSource(60_000), tmp_path, 0, 0.01)[1].reused

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(ingest, range(2))) == [False, True]


def test_single_class_and_tiny_data_are_refused(tmp_path: Path, clicks: pl.DataFrame, ingest_file: Ingest) -> None:
    schema = {"label": "click", "categorical": ["user"], "numeric": ["price"]}
    clicks.with_columns(click=pl.lit(1)).write_parquet(tmp_path / "ones.parquet")
    with pytest.raises(DataError, match="Every label of ones is 1, both 0 and 1 are needed"):
        ingest_file(tmp_path / "ones.parquet", schema)

    clicks.head(2).write_parquet(tmp_path / "two.parquet")
    with pytest.raises(DataError, match=r"part of two would have (no row|only the label)"):
        ingest_file(tmp_path / "two.parquet", schema)
    assert data_sets(tmp_path / "cache") == []
