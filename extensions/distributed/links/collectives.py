"""Measured exchanges between processes of this machine, by message size: collectives, and pooled rows in shared memory.

Multi-process training on one machine exchanges pooled rows and their gradients through shared memory
(`shunter.extensions.distributed.tables.shared_vectors`), for tables sharded by table, by column or by row.
Run as `python -m shunter.extensions.distributed.links.collectives FOLDER` in each of the processes.
"""

import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor
from torch import distributed as dist

from shunter.errors import HardwareError
from shunter.extensions.distributed.links.communication import fit_collective
from shunter.extensions.distributed.links.processes import Report, join_group, run_group, run_member
from shunter.extensions.distributed.tables.shared_vectors import Part, SharedMemory, SharedVectors
from shunter.hardware.probes.timing import measured_seconds
from shunter.hardware.types import SHARED_OPERATIONS, Collective, CollectiveCost, CollectivePoint

MODULE = "shunter.extensions.distributed.links.collectives"
MESSAGE_BYTES = tuple(4**power for power in range(5, 12))  # 1 KiB to 4 MiB
SHARED_LINK = "shared memory of the processes"
SHARED_BYTES = tuple(4**power for power in range(7, 13))  # 16 KiB to 16 MiB: vectors of a step are large
BAG_WIDTH, BAGS = 32, 8  # of each process; bags of different owners alternate, as in a sharding plan
REPETITIONS = 15
ASKED = "asked.json"
log = logging.getLogger(__name__)


def measure_collectives(processes: int, message_bytes: Sequence[int] = MESSAGE_BYTES) -> tuple[CollectiveCost, ...]:
    """Time all-reduce, all-to-all, reduce-scatter and all-gather between processes of one thread each.

    The processes communicate over loopback by gloo, as multi-process training on a CPU does.

    Args:
        processes: Number of processes, at least two.
        message_bytes: At least three sizes, multiples of four bytes for each process.

    Returns:
        One cost for each operation; an operation without a fitted bandwidth is logged and left out.

    Raises:
        HardwareError: the processes failed.
    """
    durations = _timed_in_group("collectives", processes, message_bytes)
    return fitted(durations, processes, "gloo over loopback", message_bytes)


def measure_shared_vectors(processes: int, message_bytes: Sequence[int] = SHARED_BYTES) -> tuple[CollectiveCost, ...]:
    """Time the exchange through shared memory between processes of one thread each; see `measure_collectives`.

    Returns:
        One cost for each collective that the exchange replaces; empty if processes of this machine cannot share memory.
    """
    durations = _timed_in_group("shared", processes, message_bytes)
    return fitted(durations, processes, SHARED_LINK, message_bytes, SHARED_OPERATIONS) if durations else ()


def _timed_in_group(
    exchange: str, processes: int, message_bytes: Sequence[int]
) -> dict[tuple[Collective, int], list[float]]:
    """Return the seconds of each repetition in processes of one thread, by operation and size."""
    durations: dict[tuple[Collective, int], list[float]] = {}

    def keep(kind: str, value: Any) -> None:
        operation, size, seconds = value
        durations[operation, size] = seconds

    with tempfile.TemporaryDirectory(prefix="shunter-") as name:
        (Path(name) / ASKED).write_text(json.dumps([exchange, *message_bytes]))
        run_group(MODULE, Path(name), processes, threads=1, on_report=keep)
    return durations


def fitted(
    durations: Mapping[tuple[Collective, int], list[float]],
    processes: int,
    link: str,
    message_bytes: Sequence[int] = MESSAGE_BYTES,
    operations: Sequence[Collective] = get_args(Collective),
) -> tuple[CollectiveCost, ...]:
    """Fit the cost of each operation; an operation without a fitted bandwidth is logged and left out.

    Args:
        durations: Seconds of each repetition, by operation and size of the message.
        processes: Number of processes.
        link: Description of the link, such as `gloo over loopback`.
        message_bytes: Timed message sizes in bytes.
        operations: Timed operations.
    """
    costs = []
    for operation in operations:
        points = [
            CollectivePoint(message_bytes=size, seconds=measured_seconds(durations[operation, size]))
            for size in message_bytes
        ]
        try:
            costs.append(fit_collective(operation, processes, link, points))
        except HardwareError as error:
            log.warning("%s", error)
    return tuple(costs)


def main(folder: Path, report: Report) -> None:
    """Take part in all measurements, and report the durations of the slowest process."""
    join_group(folder)
    torch.set_num_threads(1)
    exchange, *sizes = json.loads((folder / ASKED).read_text())
    for (operation, size), seconds in (_timed_shared if exchange == "shared" else timed)(sizes):
        report("duration", [operation, size, seconds])
    dist.barrier()


def timed(message_bytes: Sequence[int] = MESSAGE_BYTES) -> Iterator[tuple[tuple[Collective, int], list[float]]]:
    """Time all operations in torch's default group; yield operation and size with the slowest process's seconds."""
    for size in message_bytes:
        for operation, run in _operations(size // 4).items():
            yield (operation, size), _slowest_durations(run)


def _operations(floats: int) -> dict[Collective, Callable[[], object]]:
    processes = dist.get_world_size()
    message = torch.zeros(floats // processes * processes)
    received = torch.empty_like(message)
    part = torch.empty(len(message) // processes)
    gathered = torch.empty(len(message) * processes)
    return {
        "all_reduce": lambda: dist.all_reduce(message),
        "all_to_all": lambda: dist.all_to_all_single(received, message),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, message),
        "all_gather": lambda: dist.all_gather_into_tensor(gathered, message),
    }


def _slowest_durations(run: Callable[[], object]) -> list[float]:
    """Return the seconds of the slowest process for each repetition; all processes start a repetition together."""
    for _ in range(3):
        run()
    own = []
    for _ in range(REPETITIONS):
        dist.barrier()
        started = time.perf_counter()
        run()
        own.append(time.perf_counter() - started)
    slowest: Tensor = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.tolist()


def _timed_shared(message_bytes: Sequence[int]) -> Iterator[tuple[tuple[Collective, int], list[float]]]:
    """Time exchanges through shared memory; yield nothing if the processes cannot share memory.

    Each exchange is recorded under the collective that it replaces. For an all-gather, a message is a process's vectors
    for its own samples, otherwise for the samples of all processes.
    """
    memory = SharedMemory.offered()
    if memory is None:
        return
    count, columns = dist.get_world_size(), BAGS * BAG_WIDTH
    # For each output column its column in the processes' concatenated vectors; outputs are sorted by bag.
    order = [
        (owner * BAGS + bag) * BAG_WIDTH + column
        for bag in range(BAGS)
        for owner in range(count)
        for column in range(BAG_WIDTH)
    ]
    whole = SharedVectors(memory, [Part(widths=(columns,) * count)], order)
    by_row = SharedVectors(memory, [Part(widths=(columns,) * count, is_summed=True)], range(columns))
    for size in message_bytes:
        own = max(1, size // (4 * columns))
        forth, back = _there(whole, max(1, own // count)), _back(whole, max(1, own // count))
        yield ("all_to_all", size), [(one + other) / 2 for one, other in zip(forth, back, strict=True)]
        yield ("reduce_scatter", size), _there(by_row, max(1, own // count))
        yield ("all_gather", size), _back(by_row, own)


def _there(shared: SharedVectors, samples: int) -> list[float]:
    """Return the seconds, by repetition, to exchange the vectors of `samples` samples of each process."""
    vectors = torch.zeros(samples * shared.count, BAGS * BAG_WIDTH)
    return _slowest_durations(lambda: shared.gathered([vectors], samples))


def _back(shared: SharedVectors, samples: int) -> list[float]:
    """Return the seconds, by repetition, to exchange the gradients of the vectors of `samples` samples each."""
    gradient, like = torch.zeros(samples, shared.columns), [(samples * shared.count, BAGS * BAG_WIDTH)]
    return _slowest_durations(lambda: shared.returned(gradient, like, samples))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run_member(main)
