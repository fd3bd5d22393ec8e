"""A cache on a full disk, and one that several processes fill at the same time."""

import json
import multiprocessing
import resource
import subprocess
import sys
from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.ingestion.cache import IngestReport, ingest_source
from shunter.ingestion.sources.open import open_source

FULL_DISK = """
import resource, sys
from pathlib import Path
from shunter.errors import ShunterError
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.open import open_source

for limit in map(int, sys.argv[3:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    cache = Path(sys.argv[2]) / str(limit)
    try:
        ingest_source(open_source(sys.argv[1], None, None, cache), cache, 0, 0.01)
    except ShunterError as error:
        print(type(error).__name__, error)
"""
LIMITS = (300, 50_000, 100_000)  # the disk is full at the first rows, at the spilled ones, and among the arrays


def ingest_into(cache: Path, log: Path) -> tuple[Dataset, IngestReport]:
    return ingest_source(open_source(str(log), None, None, cache), cache, 0, 0.01)


def test_full_disk_is_one_sentence_and_leaves_nothing_that_looks_like_data(criteo_file: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-c", FULL_DISK, str(criteo_file), str(tmp_path), *map(str, LIMITS)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["DataError"] * len(LIMITS)
    for limit in LIMITS:
        cache = tmp_path / str(limit)
        assert not list(cache.glob("*/dataset.json"))
        assert not list(cache.glob(".*.building"))
        dataset, report = ingest_into(cache, criteo_file)  # space was made
        assert not report.reused
        assert dataset.rows == 1_000


def ingest_and_tell(cache: Path, log: Path, barrier: "multiprocessing.Barrier", results: Path) -> None:  # type: ignore[valid-type]
    barrier.wait()
    dataset, report = ingest_into(cache, log)
    results.write_text(json.dumps([dataset.fingerprint, dataset.rows, report.reused]))


def test_processes_that_fill_one_cache_at_once_end_with_the_same_data(criteo_file: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, cache = context.Barrier(2), tmp_path / "cache"
    results = [tmp_path / f"result{number}.json" for number in range(2)]
    processes = [
        context.Process(target=ingest_and_tell, args=(cache, criteo_file, barrier, result)) for result in results
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    told = [json.loads(result.read_text()) for result in results]
    assert len({(fingerprint, rows) for fingerprint, rows, _ in told}) == 1
    assert sorted(reused for *_, reused in told) == [False, True]  # one ingested, the other waited for it
    assert len(list(cache.glob("*/dataset.json"))) == 1


def test_limit_of_the_test_is_not_left_behind() -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
