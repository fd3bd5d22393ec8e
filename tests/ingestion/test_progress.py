"""Who waits for an ingestion sees how far it has come."""

import gzip
from pathlib import Path

import polars as pl
import pytest

from shunter.ingestion.build import build
from shunter.ingestion.progress import COUNTING, ENCODING, READING, TIMES, Progress
from shunter.ingestion.schema import Options, Schema
from shunter.ingestion.sources.criteo import CriteoSource, criteo_schema
from shunter.ingestion.sources.synthetic import CHUNK_ROWS, SyntheticSource
from shunter.ingestion.sources.tabular import CsvSource, ParquetSource
from shunter.ingestion.workers import Processes, Work
from tests.ingestion.conftest import CLICKS_SCHEMA
from tests.ingestion.criteo_files import write_criteo

Source = CriteoSource | CsvSource | ParquetSource | SyntheticSource


def told(source: Source, directory: Path, crew: Processes | None = None, unit_bytes: int = 1 << 20) -> list[Progress]:
    directory.mkdir()
    seen: list[Progress] = []
    build(source, directory, "x", 0, 1.0, work=Work(crew, unit_bytes, seen.append))
    return seen


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("logs")
    write_criteo(folder / "log.tsv", SyntheticSource(CHUNK_ROWS))
    (folder / "log.gz").write_bytes(gzip.compress((folder / "log.tsv").read_bytes(), 1))
    return {
        "text": CriteoSource("log", criteo_schema(Options()), (folder / "log.tsv",)),
        "archive": CriteoSource("log", criteo_schema(Options()), (folder / "log.gz",)),
        "generated": SyntheticSource(2 * CHUNK_ROWS),
    }


@pytest.mark.parametrize("kind", ["text", "archive", "generated"])
def test_share_rises_to_the_whole_through_all_stages(kind: str, sources: dict[str, Source], tmp_path: Path) -> None:
    seen = told(sources[kind], tmp_path / "data")

    assert list(dict.fromkeys(progress.stage for progress in seen)) == [READING, COUNTING, ENCODING]
    shares = [progress.share for progress in seen]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 1
    assert shares[-1] == pytest.approx(1)
    read = [progress for progress in seen if progress.stage == READING]
    assert len(read) > 1
    assert read[-1].bytes_read == read[-1].bytes
    if kind != "generated":
        assert read[-1].bytes == sources[kind].paths[0].stat().st_size
    assert read[-1].rows == seen[-1].rows == (2 * CHUNK_ROWS if kind == "generated" else CHUNK_ROWS)


def test_processes_tell_as_threads_do(sources: dict[str, Source], tmp_path: Path) -> None:
    with Processes(2) as crew:
        seen = told(sources["text"], tmp_path / "data", crew)

    assert [progress.share for progress in seen] == sorted(progress.share for progress in seen)
    by_stage = {progress.stage: progress for progress in seen}
    assert by_stage[READING].bytes_read == by_stage[READING].bytes
    assert (seen[-1].stage, seen[-1].rows) == (ENCODING, CHUNK_ROWS)
    assert seen[-1].share == pytest.approx(1)


def test_the_pass_over_the_times_is_told(clicks: pl.DataFrame, tmp_path: Path) -> None:
    clicks.write_parquet(tmp_path / "log.parquet", row_group_size=50)
    schema = Schema.model_validate({**CLICKS_SCHEMA, "time": "when"})
    seen = told(ParquetSource("log", schema, (tmp_path / "log.parquet",)), tmp_path / "data", unit_bytes=1)

    assert list(dict.fromkeys(progress.stage for progress in seen)) == [TIMES, READING, COUNTING, ENCODING]
    read = [progress for progress in seen if progress.stage == READING]
    assert read[-1].bytes_read == pytest.approx(read[-1].bytes, abs=4)
