"""Crews of workers that process the units of a log: processes of this machine, or nodes of a cluster.

Several threads may call a crew at once; each call waits for an idle worker.
"""

import os
import queue
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from shunter.errors import DataError
from shunter.hardware.devices.python_process import PythonProcess
from shunter.ingestion.batch import UNIT_BYTES, Source
from shunter.ingestion.progress import OnProgress, ignore, log_bytes
from shunter.ingestion.sources.addresses import copy_objects
from shunter.ingestion.sources.files import is_plain
from shunter.ingestion.sources.guard import is_foreign_request
from shunter.registry import Entry, Registry
from shunter.requests import ClusterRequest

Prepared = TypeVar("Prepared")
Item = TypeVar("Item")
Result = TypeVar("Result")

WORKER = "shunter.ingestion.worker"
MOST_PROCESSES = 8  # each process takes some 200 MB plus a copy of the vocabularies
_MANY_UNITS = 16
# Processes on nodes take some ten seconds to start; in this time the local threads read about this many bytes.
LONG_BYTES = 1 << 30

# Functions of extensions that use processes on other machines: `cluster` gets the request, the log and the cache of
# data sets; `copies` gets the request and the paths of local copies that do not exist yet.
CREWS = Registry(
    "crew",
    {
        "cluster": Entry(target="shunter.extensions.distributed.node_readers:crew_of_nodes"),
        "copies": Entry(target="shunter.extensions.distributed.node_readers:copy_by_nodes"),
    },
    "shunter.crews",
)


class Crew(Protocol):
    """Workers that do not share the memory of this process.

    Attributes:
        count: Number of workers.
    """

    count: int

    def call(self, prepare: Callable[[], Prepared], work: Callable[[Prepared, Item], Result], item: Item) -> Result:
        """Return `work(prepare(), item)`; a worker calls each `prepare` function once and reuses the result.

        Raises:
            DataError: The worker was lost. Errors of `prepare` and `work` are raised too.
        """
        ...


@dataclass(frozen=True)
class Work:
    """Execution options of an ingestion, which do not change a bit of the arrays.

    Attributes:
        crew: Workers that process the units of the log; None for threads of this process.
        unit_bytes: Size in bytes of the units in which the log is read.
        on_progress: Callback that receives the progress.
    """

    crew: Crew | None = None
    unit_bytes: int = UNIT_BYTES
    on_progress: OnProgress = ignore


BY_THREADS = Work()


class Processes:
    """Worker processes of this machine; a context manager that ends the processes."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._all = [_Process() for _ in range(count)]
        for process in self._all:
            self._idle.put(process)

    def __enter__(self) -> Self:
        """Return the crew; leaving the context ends the processes."""
        return self

    def __exit__(self, *details: object) -> None:
        """End the worker processes."""
        for process in self._all:
            process.end()

    def call(self, prepare: Callable[[], Prepared], work: Callable[[Prepared, Item], Result], item: Item) -> Result:
        """Process an item in an idle process, see `Crew.call`."""
        process = self._idle.get()
        try:
            return process.call(prepare, work, item)
        finally:
            self._idle.put(process)


class _Process:
    """Worker process and the connection to the process."""

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            descriptor = theirs.fileno()
            restricted = "restricted" if is_foreign_request() else "free"
            self._process = PythonProcess(
                WORKER,
                str(descriptor),
                restricted,
                threads=1,
                environment=ONE_THREAD | KEPT_MEMORY,
                descriptors=[descriptor],
            )
        self._prepared: object = None

    def call(self, prepare: Callable[[], Any], work: Callable[[Any, Any], Any], item: Any) -> Any:
        """Process an item in the worker process and wait for the result."""
        try:
            self._connection.send((None if prepare is self._prepared else prepare, work, item))
            self._prepared = prepare
            failed, value = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.wait(5)
            if self._process.ran_out_of_memory:
                raise DataError(
                    "A process that reads the log was ended since the memory ran out: give more memory, or fewer cores "
                    "(`taskset`)."
                ) from error
            ending, words = self._process.ending(), self._process.last_text()
            raise DataError(f"A process that reads the log {ending} ({words}): ingest it again.") from error
        if failed:
            raise value
        return value

    def end(self) -> None:
        """Kill the process at once."""
        self._connection.close()
        self._process.kill()


# Each process has one core; a thread pool in each process would compete for all cores.
ONE_THREAD = {"POLARS_MAX_THREADS": "1", "ARROW_IO_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
# Memory of one chunk is reused for the next: a new allocation by the system each time costs a tenth of all the work.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(64 << 20), "MALLOC_TRIM_THRESHOLD_": str(128 << 20)}


def crew_of(
    request: ClusterRequest | None, source: Source, cache: Path, processes: int | None = None
) -> AbstractContextManager[Crew | None]:
    """Return the crew that ingests a log: the nodes of a cluster, or processes or threads of this machine.

    Args:
        request: Request that names the cluster whose nodes read a long log; None for this machine.
        source: The log.
        cache: Folder of the data sets.
        processes: Number of processes of this machine, see `crew_for`; None to allow the cluster.

    Raises:
        HardwareError: No cluster answers.
        MissingExtensionError: No installed crew uses a cluster.
    """
    is_short = log_bytes(source) < LONG_BYTES or not is_long(source)
    if request is None or request.cluster is None or processes is not None or is_short:
        return crew_for(source, processes)
    return CREWS.load("cluster")(request, source, cache)


def copy_by(request: ClusterRequest | None, paths: Sequence[Path]) -> None:
    """Make the absent local copies of objects: many by the nodes of a cluster, few by this process.

    Args:
        request: Request that names the cluster; None for this machine.
        paths: Paths of the local copies.

    Raises:
        DataError: An object cannot be read, or changes while it is read.
        HardwareError: No cluster answers.
    """
    absent = [path for path in paths if not path.exists()]
    if request is not None and request.cluster is not None and len(absent) >= _MANY_UNITS:
        CREWS.load("copies")(request, absent)
    copy_objects(paths)


def crew_for(source: Source, processes: int | None = None) -> AbstractContextManager[Crew | None]:
    """Return the crew for a log: processes where they are faster, else None for threads of this process.

    Processes take a second to start, and on two cores they are no faster than threads. An archive cannot be divided,
    nor a log with built histories, which need all rows in order.

    Args:
        source: The log.
        processes: Number of processes, 1 for threads; None to decide by the size of the log and the cores.
    """
    if source.schema.needs_one_process:
        return nullcontext()
    if processes is None:
        cores = len(os.sched_getaffinity(0))
        processes = min(cores, MOST_PROCESSES, _parts(source)) if cores > 2 and is_long(source) else 1
    return Processes(processes) if processes > 1 else nullcontext()


def is_long(source: Source) -> bool:
    """Return True if a log is large enough for several processes and divisible (archives and histories are not)."""
    if source.schema.needs_one_process or sum(path.stat().st_size for path in source.paths) < _MANY_UNITS * UNIT_BYTES:
        return False
    return _parts(source) > 2


def _parts(source: Source) -> int:
    """Return the approximate number of units of a log; an archive counts as one unit."""
    return sum(path.stat().st_size // UNIT_BYTES if is_plain(path) else 1 for path in source.paths)


def on_crew(
    crew: Crew, prepare: Callable[[], Prepared], work: Callable[[Prepared, Item], Result]
) -> Callable[[Item], Result]:
    """Return a function of one item that runs `work` on an idle worker of the crew."""
    return lambda item: crew.call(prepare, work, item)
