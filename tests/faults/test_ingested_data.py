"""Damage in the cache of ingested data: found where a file is read, quarantined, and read anew from the log."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest

from shunter.checked_folder import MANIFEST
from shunter.engine.data.arrays import LazyArray, map_array, read_array
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.errors import DamagedDataError, DataError
from shunter.ingestion.cache import MEMO, IngestReport, ingest_source
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.sources import named
from shunter.ingestion.sources.open import open_source
from shunter.quarantine import FOLDER
from shunter.settings import Settings
from tests.faults.damage import DAMAGES, Damage, flip_bytes

SCHEMA = "label: click\nnumeric: [price]\ncategorical: [user]\nmulti_valued: [{column: tags, separator: '|'}]\n"
Ingested = Callable[[], tuple[Dataset, IngestReport]]


@pytest.fixture
def ingested(tmp_path: Path) -> Ingested:
    """Ingests the same 3,000 rows into the home's cache, each time as a new command does."""
    rows = range(3_000)
    frame = pl.DataFrame(
        {
            "click": [int(row % 3 == 0) for row in rows],
            "price": [row / 4 for row in rows],
            "user": [f"u{row % 50}" for row in rows],
            "tags": ["|".join("abc"[: row % 4]) for row in rows],
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "schema.yaml").write_text(SCHEMA)

    def ingest() -> tuple[Dataset, IngestReport]:
        source = open_source(str(tmp_path / "log.parquet"), None, str(tmp_path / "schema.yaml"), tmp_path / "downloads")
        return ingest_source(source, Settings().cache_directory, 0, 0.01)

    return ingest


def content(folder: Path) -> dict[str, bytes]:
    """All files of a data set."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every array as a large one, of blocks of 1 KiB."""
    for name in ("shunter.engine.data.arrays.EAGER_BYTES", "shunter.ingestion.cache.EAGER_BYTES"):
        monkeypatch.setattr(name, 0)
    for name in ("shunter.engine.data.arrays.BLOCK_BYTES", "shunter.checked_folder.BLOCK_BYTES"):
        monkeypatch.setattr(name, 1_024)


def quarantined(home: Path) -> list[Path]:
    """What lies in the quarantine of the cache."""
    return sorted((home / FOLDER / "cache").glob("*"))


FILES = (
    *("dataset.json", "encoder/encoder.json", "encoder/vocabulary.npz", "quarantine.csv", MANIFEST),
    *("train.label.npy", "train.dense.npy", "test.categorical.npy", "train.bag1.values.npy", "train.bag1.offsets.npy"),
)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_data_set_is_read_anew(damage: Damage, name: str, ingested: Ingested, shunter_home: Path) -> None:
    dataset, _ = ingested()
    before = content(dataset.directory)
    damage(dataset.directory / name)

    again, report = ingested()

    assert not report.reused
    assert again == dataset
    assert content(dataset.directory) == before
    assert len(quarantined(shunter_home)) == 1
    _, report = ingested()
    assert report.reused


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_memo_of_hashes_is_made_again(damage: Damage, ingested: Ingested, shunter_home: Path) -> None:
    dataset, _ = ingested()
    damage(Settings().cache_directory / MEMO)
    again, report = ingested()
    assert report.reused
    assert again == dataset
    assert [path.name.partition(".2")[0] for path in quarantined(shunter_home)] == [MEMO]


@pytest.mark.parametrize("text", ["[1, 2]", "null", '{"a": 1}', "3"])
@pytest.mark.parametrize("name", [f"../{MEMO}", "dataset.json", "encoder/encoder.json"])
def test_json_of_another_kind_is_damage_too(name: str, text: str, ingested: Ingested) -> None:
    dataset, _ = ingested()
    (dataset.directory / name).write_text(text)
    assert ingested()[0] == dataset
    Encoder.load(dataset.directory / "encoder")


def test_inverted_labels_are_found(ingested: Ingested) -> None:
    dataset, _ = ingested()
    path = dataset.directory / "train.label.npy"
    labels = np.load(path)
    labels[:200] = 1 - labels[:200]
    np.save(path, labels)
    again, report = ingested()
    assert not report.reused
    assert BatchLoader(again, "train", 64).targets().labels.sum() == dataset.splits["train"].positives


def test_a_data_set_without_checksums_is_read_anew(ingested: Ingested) -> None:
    dataset, _ = ingested()
    (dataset.directory / MANIFEST).unlink()
    again, report = ingested()
    assert (report.reused, again) == (False, dataset)
    assert (dataset.directory / MANIFEST).exists()


def test_no_flipped_byte_of_the_cache_is_missed(ingested: Ingested, shunter_home: Path) -> None:
    random = Random(3)
    dataset, _ = ingested()
    for number in range(40):
        files = sorted(path for path in Settings().cache_directory.rglob("*") if path.is_file() and path.stat().st_size)
        path = random.choice(files)
        flip_bytes(path, random.randrange(path.stat().st_size), random.randint(1, 4))
        assert ingested()[0] == dataset
        assert len(quarantined(shunter_home)) == number + 1, path


def test_a_large_array_is_verified_block_by_block(ingested: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage that came after the command had begun is found by the batch that reads it; nothing before it is lost."""
    small_blocks(monkeypatch)
    dataset, _ = ingested()
    path = dataset.directory / "train.dense.npy"
    flip_bytes(path, path.stat().st_size - 10, 4)
    first_row = (path.stat().st_size // 1_024 * 1_024 - 128) // 4  # of the last block, behind the header

    dataset, report = ingested()
    assert report.reused
    loader = BatchLoader(dataset, "train", 100)
    batches = loader.batches()
    for _ in range(first_row // 100):  # those before the damaged block
        next(batches)
    with pytest.raises(DamagedDataError) as caught:
        next(batches)
    assert caught.value.path == path
    assert not dataset.directory.exists()
    again, report = ingested()
    assert not report.reused
    assert len(list(BatchLoader(again, "train", 100).batches())) == len(loader)


@pytest.mark.parametrize("shuffle", [False, True])
def test_lazy_arrays_read_the_same_batches(shuffle: bool, ingested: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, _ = ingested()
    eager = list(BatchLoader(dataset, "train", 100, shuffle=shuffle).batches())
    small_blocks(monkeypatch)
    (dataset.directory / MANIFEST).unlink()
    dataset, _ = ingested()
    lazy = BatchLoader(dataset, "train", 100, shuffle=shuffle)
    assert isinstance(lazy._arrays.dense, LazyArray)
    for one, other in zip(eager, lazy.batches(), strict=True):
        for name in ("dense", "values", "offsets", "labels"):
            assert np.array_equal(getattr(one, name), getattr(other, name))


def test_an_array_that_vanished_says_what_to_do(ingested: Ingested) -> None:
    dataset, _ = ingested()
    (dataset.directory / "train.label.npy").unlink()
    with pytest.raises(DataError, match=str(dataset.directory)):
        map_array(dataset.directory / "train.label.npy")
    with pytest.raises(DataError, match=str(dataset.directory)):
        read_array(dataset.directory / "train.label.npy")


@pytest.fixture
def downloads(movielens_wheel: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "downloads"
    folder.mkdir(parents=True)
    (folder / named._WHEEL).symlink_to(movielens_wheel)
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_a_damaged_download_is_written_again(damage: Damage, suffix: str, downloads: Path, shunter_home: Path) -> None:
    (table,) = open_source("ml-100k", None, None, downloads).paths
    before = table.read_bytes()
    damage(table.with_suffix(f".{suffix}"))
    open_source("ml-100k", None, None, downloads)
    assert table.read_bytes() == before
    assert len(list((shunter_home / FOLDER / "downloads").iterdir())) == 1
