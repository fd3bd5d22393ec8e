"""Exchange of pooled rows and their gradients through shared memory, timed by the size of a process's message.

The exchange is that of training runs in several processes of this machine
(`shunter.extensions.distributed.tables.shared_vectors`), for tables that are sharded by table, by column or by row. Run
as `python -m shunter.extensions.distributed.links.exchange_probe FOLDER` in each process.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import distributed as dist

from shunter.extensions.distributed.links.collectives import SIZES, fitted, slowest_durations, timed_in_group
from shunter.extensions.distributed.links.processes import Report, join_group, run_member
from shunter.extensions.distributed.tables.shared_memory import SharedMemory
from shunter.extensions.distributed.tables.shared_vectors import Part, SharedVectors
from shunter.hardware.types import SHARED_OPERATIONS, Collective, CollectiveCost

MODULE = "shunter.extensions.distributed.links.exchange_probe"
LINK = "memory that processes share"
MESSAGE_BYTES = tuple(4**power for power in range(7, 13))  # 16 KiB to 16 MiB: vectors of a step are large
BAG_WIDTH, BAGS = 32, 8  # of each process; bags of different owners alternate, as in a sharding plan


def measure_shared_vectors(processes: int, message_bytes: Sequence[int] = MESSAGE_BYTES) -> tuple[CollectiveCost, ...]:
    """Time the exchange through shared memory between processes of one thread each.

    Args:
        processes: Number of processes, at least two.
        message_bytes: At least three sizes.

    Returns:
        One cost for each collective that the exchange replaces; empty if processes cannot share memory here.

    Raises:
        HardwareError: The processes failed.
    """
    durations = timed_in_group(MODULE, processes, message_bytes)
    return fitted(durations, processes, LINK, message_bytes, SHARED_OPERATIONS) if durations else ()


def main(folder: Path, report: Report) -> None:
    """Take part in all measurements, and report the durations of the slowest process."""
    join_group(folder)
    torch.set_num_threads(1)
    memory = SharedMemory.offered()
    if memory is not None:
        for (operation, size), seconds in _timed(memory, list(map(int, (folder / SIZES).read_text().split()))):
            report("duration", [operation, size, seconds])
    dist.barrier()


def _timed(memory: SharedMemory, message_bytes: Sequence[int]) -> Iterator[tuple[tuple[Collective, int], list[float]]]:
    """Yield each operation with its message size and the seconds of the slowest process.

    The size of a message is that of torch's collectives: a process's vectors for all samples. If gradients of partial
    sums are gathered, it is a process's vectors for its own samples.
    """
    count, columns = dist.get_world_size(), BAGS * BAG_WIDTH
    whole = SharedVectors(memory, [Part(widths=(columns,) * count)], _in_turn(count))
    by_row = SharedVectors(memory, [Part(widths=(columns,) * count, is_summed=True)], range(columns))
    for size in message_bytes:
        own = max(1, size // (4 * columns))
        forth, back = _there(whole, max(1, own // count)), _back(whole, max(1, own // count))
        yield ("all_to_all", size), [(one + other) / 2 for one, other in zip(forth, back, strict=True)]
        yield ("reduce_scatter", size), _there(by_row, max(1, own // count))
        yield ("all_gather", size), _back(by_row, own)


def _there(shared: SharedVectors, samples: int) -> list[float]:
    """Return the seconds of exchanging the vectors of `samples` samples of each process."""
    vectors = torch.zeros(samples * shared.count, BAGS * BAG_WIDTH)
    return slowest_durations(lambda: shared.gathered([vectors], samples))


def _back(shared: SharedVectors, samples: int) -> list[float]:
    """Return the seconds of exchanging the gradients of these vectors."""
    gradient, like = torch.zeros(samples, shared.columns), [(samples * shared.count, BAGS * BAG_WIDTH)]
    return slowest_durations(lambda: shared.returned(gradient, like, samples))


def _in_turn(count: int) -> list[int]:
    """Return the source column of each output column: one bag of each process in turn."""
    return [
        (owner * BAGS + bag) * BAG_WIDTH + column
        for bag in range(BAGS)
        for owner in range(count)
        for column in range(BAG_WIDTH)
    ]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run_member(main)
