"""Who works on the units of a log does not show in its arrays."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shunter.errors import DataError, RequestError
from shunter.ingestion.batch import Source
from shunter.ingestion.build import build
from shunter.ingestion.schema import Options, Schema
from shunter.ingestion.sources import guard
from shunter.ingestion.sources.criteo import CriteoSource, criteo_schema
from shunter.ingestion.sources.parts import parts_source
from shunter.ingestion.sources.synthetic import CHUNK_ROWS, SyntheticSource
from shunter.ingestion.sources.tabular import CsvSource, ParquetSource
from shunter.ingestion.workers import Processes, Work, crew_for, is_long
from tests.ingestion.criteo_files import write_criteo

SCHEMA = Schema.model_validate(
    {
        "label": "click",
        "numeric": ["price"],
        "categorical": ["user", "shop"],
        "multi_valued": [{"column": "tags", "separator": "|"}],
        "weight": "weight",
        "vocabulary": {"min_count": 1},
    }
)


@pytest.fixture(scope="module")
def crew() -> Iterator[Processes]:
    with Processes(2) as processes:
        yield processes


def contents(source: Source, crew: Processes | None, unit_bytes: int, max_bad_share: float = 1.0) -> dict[str, bytes]:
    """Every file of a data set, or the error; without where it lies."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        try:
            dataset = build(source, directory, "x", 0, max_bad_share, work=Work(crew, unit_bytes))
        except DataError as error:
            return {"error": str(error).encode()}
        files = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        files["dataset.json"] = files["dataset.json"].replace(folder.encode(), b"")
        assert dataset.rows > 0
        return files


def csv_text(seed: int, rows: int, *, quoted: bool) -> str:
    """A log with bad rows, and with line ends, quotes and open quotes in its values."""
    random = np.random.default_rng(seed)
    shops = ["north", "south", "", *(['"in\nthe west"', '"the ""end"""', '"east, side"', '"open'] if quoted else [])]
    lines = ["click,price,user,shop,tags,weight"]
    for row in range(rows):
        price = random.choice(["1.5", "-3", "", "dear"], p=[0.5, 0.3, 0.15, 0.05])
        tags = "|".join(random.choice(["new", "sale", "blue"], random.integers(0, 3)))
        line = f"{row % 2},{price},{random.integers(9)},{random.choice(shops)},{tags},{random.integers(1, 3)}"
        lines.append(line if random.random() > 0.03 else random.choice(["", "1,2", line + ",more"]))
    return "\n".join(lines) + "\n" * int(random.integers(2))


@given(seed=st.integers(0, 2**32), rows=st.integers(0, 200), unit_bytes=st.integers(400, 3_000), quoted=st.booleans())
@settings(max_examples=6, deadline=None)
def test_processes_give_the_arrays_of_one(crew: Processes, seed: int, rows: int, unit_bytes: int, quoted: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.csv" for number in range(2)]
        for number, path in enumerate(paths):
            path.write_text(csv_text(seed + number, rows, quoted=quoted))
        source = CsvSource("log", SCHEMA, tuple(paths))

        assert contents(source, crew, unit_bytes) == contents(source, None, unit_bytes)


@given(seed=st.integers(0, 2**32), unit_bytes=st.integers(400, 3_000), quoted=st.booleans())
@settings(max_examples=10, deadline=None)
def test_units_together_are_the_file(seed: int, unit_bytes: int, quoted: bool) -> None:
    """The same rows, ids, parts and rejected rows under the same numbers; the mean of numbers but for its last bits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        path.write_text(csv_text(seed, 200, quoted=quoted))
        source = CsvSource("log", SCHEMA, (path,))
        assume(sum(1 for _ in source.units(unit_bytes)) > 1)  # an open quote may run to the end of the file
        whole, cut = contents(source, None, 1 << 30), contents(source, None, unit_bytes)

    assert whole.keys() == cut.keys()
    for name in whole.keys() - {"encoder/encoder.json"}:
        if not name.endswith("dense.npy"):
            assert whole[name] == cut[name], name


def test_criteo_in_units_is_the_file_bit_by_bit(crew: Processes, tmp_path: Path) -> None:
    paths = (tmp_path / "a.tsv", tmp_path / "b.tsv")
    for seed, path in enumerate(paths):
        write_criteo(path, SyntheticSource(CHUNK_ROWS, seed))
        path.write_bytes(path.read_bytes().replace(b"\n0\t", b"\nx\t", 3).rstrip(b"\n"))
    source = CriteoSource("log", criteo_schema(Options()), paths)
    whole = contents(source, None, 1 << 30)

    assert whole["quarantine.csv"].count(b"\n") == 7
    assert contents(source, crew, 4 << 20) == whole
    assert contents(source, crew, 1_000_000) == contents(source, None, 1_000_000)


def test_every_source_can_be_taken_apart(crew: Processes, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(csv_text(0, 500, quoted=True))
    table = pl.read_csv(path, infer_schema=False, truncate_ragged_lines=True, ignore_errors=True, quote_char=None)
    table = table.with_columns(pl.col("tags").str.split("|"), pl.col("shop").fill_null("x"))
    table.write_parquet(tmp_path / "log.parquet", row_group_size=50)
    (tmp_path / "test.csv").write_text(csv_text(1, 300, quoted=True))
    listed = SCHEMA.model_copy(update={"weight": None})
    timed = tmp_path / "timed.csv"
    timed.write_text("click,user,when\n" + "".join(f"{row % 3 % 2},{row % 9},{row * 7 % 400}\n" for row in range(400)))
    schema = Schema.model_validate({"label": "click", "categorical": ["user"], "time": "when"})
    sources: list[Source] = [
        CsvSource("log", schema, (timed,)),
        ParquetSource("log", listed, (tmp_path / "log.parquet",)),
        parts_source(CsvSource("log", SCHEMA, (path,)), {"test": CsvSource("log", SCHEMA, (tmp_path / "test.csv",))}),
        SyntheticSource(2 * CHUNK_ROWS + 10),
    ]
    for source in sources:
        assert sum(1 for _ in source.units(1_000)) > 2
        here = contents(source, None, 1_000)
        assert "error" not in here
        assert contents(source, crew, 1_000) == here


def test_errors_of_a_worker_are_the_users(crew: Processes, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("click,price\n1,2\n")
    with pytest.raises(DataError, match="lacks the columns"):
        build(CsvSource("log", SCHEMA, (path,)), tmp_path, "x", 0, 0.01, work=Work(crew))


def test_lost_worker_is_told(tmp_path: Path) -> None:
    with Processes(1) as crew, pytest.raises(DataError, match=r"A process that reads the log was ended by SIGKILL"):
        crew.call(os.getpid, _kill, 0)


def _kill(_: int, __: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_read_what_the_request_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_FOREIGN", [lambda: True])
    path = tmp_path / "log.csv"
    path.write_text("click\n")
    with Processes(1) as crew, pytest.raises(RequestError, match="is outside the folders"):
        crew.call(os.getpid, _open, path)


def _open(_: int, path: Path) -> None:
    guard.open_checked(path).close()


@pytest.mark.parametrize(
    ("begins", "files", "mib", "is_worth_it"),
    [(b"0\t", 1, 300, True), (b"0\t", 1, 200, False), (b"\x1f\x8b", 2, 150, False), (b"\x1f\x8b", 3, 100, True)],
    ids=["long", "short", "two archives", "three archives"],
)
def test_long_logs_that_can_be_taken_apart_are_worth_processes(
    begins: bytes, files: int, mib: int, is_worth_it: bool, tmp_path: Path
) -> None:
    paths = tuple(tmp_path / str(number) for number in range(files))
    for path in paths:
        path.write_bytes(begins)
        os.truncate(path, mib << 20)  # takes no room

    assert is_long(CriteoSource("log", criteo_schema(Options()), paths)) is is_worth_it


def test_small_logs_start_no_process(criteo_file: Path) -> None:
    with crew_for(CriteoSource("log", criteo_schema(Options()), (criteo_file,))) as crew:
        assert crew is None
