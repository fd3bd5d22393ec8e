"""Misses of the cache in front of tables in a file, by which rows go: the batches of a training alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.checkpoints import zipf_log
from benchmarks.hashing.row import TRIALS
from benchmarks.quality.files import write_files
from shunter.engine.config import Execution
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.errors import TooLargeError
from shunter.extensions.tiers.memory.compare import ids_per_sample
from shunter.extensions.tiers.memory.demand import demands
from shunter.extensions.tiers.memory.hits import Passes, predict_hits
from shunter.extensions.tiers.row_use import row_levels
from shunter.extensions.tiers.slots import SlotMap
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.open import open_source
from shunter.models.registry import model_spec

SEED, EPOCHS, CACHE_SHARE = 0, 2, 0.2
MOST_LEVEL = 255
# Samples of a batch such that a fifth of the rows has room for one.
SAMPLES = {"zipf": 1_024, "ml1m": 512, "frappe": 256, "criteo": 128}
POLICIES = ("lru", "lfu", "lfu_forgetting", "pinned")


@dataclass(frozen=True)
class Replayed:
    """What a cache of some rows comes to on a log.

    Attributes:
        rows: Rows of all tables.
        cache_rows: Those that lie in memory.
        misses: By policy, in each pass over the training part.
        predicted: Of the policy of a training, over all passes.
    """

    rows: int
    cache_rows: int
    misses: Mapping[str, list[float]]
    predicted: float

    @property
    def error(self) -> float:
        """Distance of the predicted from the measured misses."""
        return abs(self.predicted - self.measured)

    @property
    def measured(self) -> float:
        """Misses of the policy of a training, over all passes."""
        return fmean(self.misses["pinned"])


def logs(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, Dataset]]:
    """Some of the logs: of Zipf's law, and those of the benchmark of hashing."""
    for name in names:
        own = folder / name
        own.mkdir()
        yield name, zipf_log(own, 120_000, 50_000) if name == "zipf" else _published(name, own)


def _published(name: str, folder: Path) -> Dataset:
    paths = write_files(TRIALS[name].log, folder)
    held_out = {part: paths[part] for part in ("validation", "test")}
    source = open_source(paths["data"], None, paths["schema_file"], folder, held_out)
    return ingest_source(source, folder / "cache", SEED, 0.0)[0]


def replay(
    dataset: Dataset, samples: int, cache_share: float = CACHE_SHARE, policies: Sequence[str] = POLICIES
) -> Replayed:
    """Some policies on the batches of a training; `pinned` is among them, by which a training goes."""
    rows = sum(dataset.features.table_rows)
    slots = int(cache_share * rows)
    loader = BatchLoader(dataset, "train", samples, shuffle=True, seed=SEED)
    passes = [[_rows_of_batch(dataset, batch) for batch in loader.batches(epoch=epoch)] for epoch in range(EPOCHS)]
    tables = demands(dataset, model_spec(), ids_per_sample(dataset))
    window = Execution().window_batches
    length = Passes(dataset.splits["train"].rows, EPOCHS)
    return Replayed(
        rows=rows,
        cache_rows=slots,
        misses={name: _Replay(name, dataset, slots, window).misses(passes) for name in policies},
        predicted=predict_hits(tables, samples, slots * tables[0].row_bytes, window, length).miss_rate,
    )


def _rows_of_batch(dataset: Dataset, batch: Batch) -> np.ndarray:
    table_of = list(dataset.features.table_of)
    starts = np.cumsum([0, *dataset.features.table_rows])[:-1][table_of]
    ids = np.diff(batch.offsets.numpy()[:: len(batch.labels)])
    return np.unique(batch.values.numpy() + np.repeat(starts, ids))


class _Replay:
    """A cache of one policy.

    Those that count uses do it in the levels of the product's own book: of all rows, or of those in the cache alone.
    """

    def __init__(self, policy: str, dataset: Dataset, slots: int, window: int) -> None:
        rows = sum(dataset.features.table_rows)
        self._counts = policy.startswith("lfu")
        self._forgets = policy == "lfu_forgetting"
        self._levels = None if policy == "lru" else np.zeros(rows, np.uint8) if self._counts else row_levels(dataset)
        self._map = SlotMap(rows, slots, window, self._levels)

    def misses(self, passes: list[list[np.ndarray]]) -> list[float]:
        """Share of the rows of a batch that are not there, in each pass."""
        found = []
        for batches in passes:
            missed = sum(self._missed(rows) for rows in batches)
            found.append(missed / sum(map(len, batches)))
        return found

    def _missed(self, rows: np.ndarray) -> int:
        if self._counts and self._levels is not None:
            self._levels[rows] += self._levels[rows] < MOST_LEVEL
        try:
            admission = self._map.admit(rows)
        except TooLargeError:  # then a training waits until the batches before are done
            self._map.leave_window()
            admission = self._map.admit(rows)
        if self._forgets and self._levels is not None:
            self._levels[admission.leaving] = 0
        return len(admission.arriving)
