"""Embedding tables for scoring with rows in a file, and pinned rows, a row cache and pooled sums in memory."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from shunter.errors import TooLargeError
from shunter.extensions.tiers.stored.memory_division import MemoryDivision
from shunter.extensions.tiers.stored.row_cache import RowCache
from shunter.extensions.tiers.stored.row_file import RowFile
from shunter.models.embeddings.cache_counts import LookupCounts
from shunter.models.embeddings.mapped import sum_of_rows
from shunter.models.embeddings.role import EmbeddingTables

SHORTEST = 4  # ids of the shortest list whose sum is cached
OVERHEAD_BYTES = 300  # of a Python dictionary entry with a key and an array


class PooledSums:
    """Cache of pooled embeddings: sums of the rows of the most recently used lists of ids.

    Args:
        most_bytes: Largest memory of the cache.

    Attributes:
        hits: Number of lists whose sum was found.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._sums: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self.hits = 0

    def find(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the cached sum of a list of row numbers; None if it is not cached."""
        key = rows.tobytes()
        found = self._sums.get(key)
        if found is not None:
            self._sums.move_to_end(key)
            self.hits += 1
        return found

    def put(self, rows: np.ndarray, total: np.ndarray) -> None:
        """Cache the sum of a list of row numbers; the least recently used sums are evicted."""
        key = rows.tobytes()
        size = len(key) + total.nbytes + OVERHEAD_BYTES
        if key in self._sums or size > self._most_bytes:
            return
        self._sums[key] = total.copy()
        self._bytes += size
        while self._bytes > self._most_bytes:
            old, value = self._sums.popitem(last=False)
            self._bytes -= len(old) + value.nbytes + OVERHEAD_BYTES


class StoredEmbeddings(EmbeddingTables):
    """Tables in a file, with memory for some of their rows; they cannot be trained.

    A lookup fetches each distinct row of a batch once, and its sums are bitwise equal to those of the kernels in
    memory. Lookups from several threads run one after the other.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        table_of: See `EmbeddingTables`.
        file: File of the rows, table by table.
        memory: Division of the memory.

    Raises:
        HardwareError: The file cannot be read.
        CheckpointError: The file was changed.
    """

    is_in_memory = False

    def __init__(
        self, rows: Sequence[int], dim: int, table_of: Sequence[int], file: RowFile, memory: MemoryDivision
    ) -> None:
        super().__init__(rows, dim, 0.0, table_of)
        self.is_frozen = True
        # The tables are not in the state dict: the loader of the model leaves their weights out.
        self.register_buffer("weight", torch.empty(0, dim), persistent=False)
        self.register_buffer("adagrad_sum", torch.empty(0), persistent=False)
        self.memory = memory
        self._file = file
        self._cache = RowCache(memory.cached_rows, dim, memory.policy)
        self._pooled = PooledSums(memory.pooled_bytes)
        self._starts = np.array([0, *accumulate(self.rows)][:-1], np.int64)
        self._pins = np.array(memory.pinned, np.int64)
        self._pin_starts = np.array([0, *accumulate(memory.pinned)][:-1], np.int64)
        self._pinned = self._read_pinned()
        self._lock = threading.Lock()
        self._counts = LookupCounts()

    @property
    def placement(self) -> str:
        """Sentence that counts the rows pinned in memory, cached and left in the file."""
        memory, rows = self.memory, sum(self.rows)
        whole = sum(pinned == table for pinned, table in zip(memory.pinned, self.rows, strict=True))
        how = "past the page cache" if self._file.is_direct else "through the page cache"
        return (
            f"Of {rows:,} embedding rows {sum(memory.pinned):,} stay in memory ({whole} of {len(self.rows)} tables "
            f"whole), {self._cache.slots:,} of the others at a time; the rest is read from the file, {how}."
        )

    @property
    def counts(self) -> LookupCounts:
        """Numbers of rows found in memory and rows read from the file."""
        found, of_file = self._counts, self._file.counts
        return LookupCounts(
            pinned=found.pinned,
            cached=found.cached,
            read=found.read,
            pooled=self._pooled.hits,
            read_bytes=of_file.read_bytes,
            read_seconds=of_file.seconds,
        )

    @torch.no_grad()
    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the sum of the embedding rows of each bag, `[batch, bags of a sample * dim]`."""
        ends = offsets.numpy().astype(np.int64)
        rows = self._row_of_each(values, offsets).numpy()
        with self._lock:
            if self.memory.pooled_bytes and weights is None:
                pooled = self._sums_with_lists(rows, ends)
            else:
                pooled = self._sums(rows, ends, weights)
        return pooled.view(len(self.table_of), -1, self.dim).transpose(0, 1).flatten(1)

    def initialise(self, generator: torch.Generator) -> None:
        """Do nothing, because the file already contains the trained weights."""

    def hot_rows(self) -> np.ndarray:
        """Return the numbers of the rows in the cache, ascending."""
        return self._cache.residents()

    def warm(self, rows: np.ndarray) -> None:
        """Load rows into the cache; their numbers must be ascending."""
        with self._lock:
            for start in range(0, len(rows), self.memory.batch_rows):
                self._gather(rows[start : start + self.memory.batch_rows])

    def close(self) -> None:
        """Close the file of the embedding tables."""
        self._file.close()

    def _read_pinned(self) -> np.ndarray:
        pinned = np.empty((int(self._pins.sum()), self.dim), np.float32)
        for start, first, count in zip(self._pin_starts, self._starts, self._pins, strict=True):
            for done in range(0, int(count), self.memory.batch_rows):
                many = min(int(count) - done, self.memory.batch_rows)
                pinned[start + done : start + done + many] = self._file.read(first + np.arange(done, done + many))
        return pinned

    def _sums_with_lists(self, rows: np.ndarray, ends: np.ndarray) -> Tensor:
        """Return the sum of the rows of each bag, `[bags, dim]`, from the cache of sums for long lists if possible."""
        lengths = np.diff(ends)
        lists = np.flatnonzero(lengths >= SHORTEST).tolist()
        known = {place: self._pooled.find(rows[ends[place] : ends[place + 1]]) for place in lists}
        found = [place for place, total in known.items() if total is not None]
        if found:
            is_asked = np.ones(len(lengths), bool)
            is_asked[found] = False
            rows_left = rows[np.repeat(is_asked, lengths)]
            left = np.concatenate([[0], np.cumsum(np.where(is_asked, lengths, 0))])
        else:
            rows_left, left = rows, ends
        sums = self._sums(rows_left, left)
        numbers = sums.numpy()
        for place, total in known.items():
            if total is not None:
                numbers[place] = total
            else:
                self._pooled.put(rows[ends[place] : ends[place + 1]], numbers[place])
        return sums

    def _sums(self, rows: np.ndarray, ends: np.ndarray, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag, `[bags, dim]`; split the bags if memory cannot hold all their distinct rows."""
        distinct, position = np.unique(rows, return_inverse=True)
        if len(distinct) > self.memory.batch_rows:
            bags = len(ends) - 1
            if bags == 1:
                raise TooLargeError(
                    f"A list of {len(distinct):,} ids needs more embedding rows than the "
                    f"{self.memory.batch_rows:,} that fit into memory: raise --memory, or send shorter "
                    "lists."
                )
            cut = ends[bags // 2]
            first, second = (None, None) if weights is None else (weights[:cut], weights[cut:])
            former = self._sums(rows[:cut], ends[: bags // 2 + 1], first)
            return torch.cat([former, self._sums(rows[cut:], ends[bags // 2 :] - cut, second)])
        gathered = torch.from_numpy(self._gather(distinct))
        return sum_of_rows(gathered, torch.from_numpy(position.astype(np.int64)), torch.from_numpy(ends), weights)

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        """Return distinct rows, given by ascending numbers, from memory, cache or file: `[rows, dim]`."""
        out = np.empty((len(rows), self.dim), np.float32)
        table = np.searchsorted(self._starts, rows, side="right") - 1
        rank = rows - self._starts[table]
        stays = rank < self._pins[table]
        out[stays] = self._pinned[self._pin_starts[table[stays]] + rank[stays]]
        others = np.flatnonzero(~stays)
        slots = self._cache.find(rows[others])
        is_cached = slots >= 0
        out[others[is_cached]] = self._cache.take(slots[is_cached])
        missing = others[~is_cached]
        if len(missing):
            out[missing] = self._file.read(rows[missing])
            self._cache.put(rows[missing], out[missing])
        self._counts.pinned += len(rows) - len(others)
        self._counts.cached += len(others) - len(missing)
        self._counts.read += len(missing)
        return out
