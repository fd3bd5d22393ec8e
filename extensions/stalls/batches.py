"""Batches of the stall profiler: read beforehand, read with a warm page cache, or read with a cold one."""

import gc
from collections.abc import Generator, Iterator, Sequence
from itertools import count, islice

import numpy as np
import torch
from torch import distributed as dist

from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset
from shunter.errors import RequestError
from shunter.extensions.distributed.training.loader import ShareLoader
from shunter.hardware.devices.page_cache import drop_from_page_cache, page_cache_share

LARGEST_CACHED_SHARE = 0.1


class StallBatches:
    """Batches of the training part for one process, in the shuffled order of a training run.

    Args:
        dataset: Data set.
        batch_size: Samples per process.
        rank: Rank of this process.
        processes: Number of processes.

    Raises:
        RequestError: The training part is smaller than one batch of all processes.
    """

    def __init__(self, dataset: Dataset, batch_size: int, rank: int, processes: int) -> None:
        self._dataset, self._rank, self._processes = dataset, rank, processes
        self._size = batch_size * processes
        if dataset.splits["train"].rows < self._size:
            raise RequestError(
                f"The training part of {dataset.name} has only {dataset.splits['train'].rows:,} rows, but "
                f"a step of {self._size:,} samples on {processes} device(s) needs more: lower the batch "
                "size."
            )

    def read(self) -> Generator[Batch, None, None]:
        """Yield full batches, epoch after epoch without end."""
        loader = ShareLoader(self._rank, self._processes, self._dataset, "train", self._size, shuffle=True, seed=0)
        for epoch in count():
            yield from map(loader.read, self._full(loader.rows_of_batches(epoch=epoch)))

    def resident(self, number: int, device: torch.device) -> list[Batch]:
        """Return the first `number` batches, copied to the device."""
        return [batch.to(device) for batch in islice(self.read(), number)]

    def drop_files(self) -> str | None:
        """Drop the files of the training part from the page cache; every process must call this at the same time.

        Returns:
            Reason why the files could not be dropped; None on success.
        """
        gc.collect()  # files that are still mapped would not be dropped
        dist.barrier()
        reason = [None]
        if self._rank == 0:
            files = sorted(self._dataset.directory.glob("train.*.npy"))
            drop_from_page_cache(files)
            share = page_cache_share(files)
            if share is None or share > LARGEST_CACHED_SHARE:
                reason = ["the files of the data set cannot be dropped from memory on this file system"]
        dist.broadcast_object_list(reason)
        return reason[0]

    def _full(self, rows: Iterator[slice | np.ndarray]) -> Iterator[slice | np.ndarray]:
        return (some for some in rows if not isinstance(some, slice) and len(some) == self._size)


def largest_window_rows(batches: Sequence[Batch], rows: Sequence[int], window: int) -> int:
    """Return the largest number of embedding rows that `window` consecutive batches access, over all tables.

    Args:
        batches: Batches in order.
        rows: Number of rows of each table.
        window: Number of batches in flight at a time.
    """
    starts = np.cumsum((0, *rows[:-1]))
    touched = []
    for batch in batches:
        ids_of_table = np.diff(batch.offsets[:: len(batch)].numpy())
        touched.append(np.unique(batch.values.numpy() + np.repeat(starts, ids_of_table)))
    windows = (touched[first : first + window] for first in range(max(1, len(touched) - window + 1)))
    return max(len(np.unique(np.concatenate(some))) for some in windows)
