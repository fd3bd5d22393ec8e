"""Memory of an ingestion is that of its vocabularies and of the chunks under way, however long the log."""

import tracemalloc
from pathlib import Path

import pytest

from shunter.ingestion.build import build
from shunter.ingestion.schema import Options
from shunter.ingestion.sources.criteo import CriteoSource, criteo_schema
from shunter.ingestion.sources.synthetic import SyntheticSource
from tests.ingestion.criteo_files import write_criteo

# Each copy is nearly two chunks; the shorter log has more of them than threads have under way.
COPIES = (6, 18)


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Lines of which one in a hundred cannot be read."""
    path = tmp_path_factory.mktemp("block") / "log.tsv"
    write_criteo(path, SyntheticSource(30_000))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[::100] = [b"x" + line for line in lines[::100]]
    return b"".join(lines)


def peak_bytes(block: bytes, copies: int, folder: Path) -> int:
    """Most memory that an ingestion of so many copies of the same rows has taken."""
    folder.mkdir()
    path = folder / "log.tsv"
    with path.open("wb") as stream:
        for _ in range(copies):
            stream.write(block)
    tracemalloc.start()
    try:
        dataset = build(CriteoSource("log", criteo_schema(Options()), (path,)), folder, "x", 0, max_bad_share=0.02)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert dataset.quarantined_rows == 300 * copies
    path.unlink()
    return peak


def test_a_log_three_times_as_long_takes_no_more_memory(block: bytes, tmp_path: Path) -> None:
    peak_bytes(block, 1, tmp_path / "first")  # what a process makes once is made
    short, long = (peak_bytes(block, copies, tmp_path / str(copies)) for copies in COPIES)

    assert long < 1.25 * short  # which chunks are under way together is left to the threads
