"""Measured collective operations between processes of this machine, by message size.

Run as `python -m shunter.extensions.distributed.links.collectives FOLDER` in each of the processes.
"""

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
from shunter.hardware.probes.quantities import measured_seconds
from shunter.hardware.types import Collective, CollectiveCost, CollectivePoint

MODULE = "shunter.extensions.distributed.links.collectives"
MESSAGE_BYTES = tuple(4**power for power in range(5, 12))  # 1 KiB to 4 MiB
REPETITIONS = 15
SIZES = "sizes.txt"
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
    durations = timed_in_group(MODULE, processes, message_bytes)
    return fitted(durations, processes, "gloo over loopback", message_bytes)


def timed_in_group(
    module: str, processes: int, message_bytes: Sequence[int]
) -> dict[tuple[Collective, int], list[float]]:
    """Run a module in processes of one thread and return the seconds of each repetition, by operation and size.

    Raises:
        HardwareError: the processes failed.
    """
    durations: dict[tuple[Collective, int], list[float]] = {}

    def keep(kind: str, value: Any) -> None:
        operation, size, seconds = value
        durations[operation, size] = seconds

    with tempfile.TemporaryDirectory(prefix="shunter-") as name:
        (Path(name) / SIZES).write_text(" ".join(map(str, message_bytes)))
        run_group(module, Path(name), processes, threads=1, on_report=keep)
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
        message_bytes: Sizes.
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
    for (operation, size), seconds in timed(list(map(int, (folder / SIZES).read_text().split()))):
        report("duration", [operation, size, seconds])
    dist.barrier()


def timed(message_bytes: Sequence[int] = MESSAGE_BYTES) -> Iterator[tuple[tuple[Collective, int], list[float]]]:
    """Time all operations in torch's default group; yield operation and size with the slowest process's seconds."""
    for size in message_bytes:
        for operation, run in _operations(size // 4).items():
            yield (operation, size), slowest_durations(run)


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


def slowest_durations(run: Callable[[], object]) -> list[float]:
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


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run_member(main)
