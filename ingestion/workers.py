"""Who works on the units of a log: processes of this machine, or nodes of a cluster.

Several threads may call a crew at once; each call is served by one worker, and waits for one.
"""

import os
import queue
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import Any, Protocol, Self, TypeVar

from shunter.errors import DataError
from shunter.hardware.devices.python_process import PythonProcess
from shunter.ingestion.batch import UNIT_BYTES, Source
from shunter.ingestion.progress import OnProgress, ignore
from shunter.ingestion.sources.files import is_plain
from shunter.ingestion.sources.guard import is_foreign_request

Prepared = TypeVar("Prepared")
Item = TypeVar("Item")
Result = TypeVar("Result")

WORKER = "shunter.ingestion.worker"
MOST_PROCESSES = 8  # each takes some 200 MB, and as much as the vocabularies once more
_MANY_UNITS = 16


class Crew(Protocol):
    """Workers that do not share the memory of this process.

    Attributes:
        count: How many.
    """

    count: int

    def call(self, prepare: Callable[[], Prepared], work: Callable[[Prepared, Item], Result], item: Item) -> Result:
        """Give `work(prepare(), item)`; a worker prepares once for all calls that name the same `prepare` object.

        Raises:
            DataError: The worker was lost; besides, what the functions raise.
        """
        ...


@dataclass(frozen=True)
class Work:
    """How an ingestion is carried out; its arrays are the same, bit by bit.

    Attributes:
        crew: Works on the units of the log; None for threads of this process.
        unit_bytes: Size of the parts in which the log is read.
        on_progress: Is told how far it has come.
    """

    crew: Crew | None = None
    unit_bytes: int = UNIT_BYTES
    on_progress: OnProgress = ignore


BY_THREADS = Work()


class Processes:
    """Processes of this machine; a context manager that ends them.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._all = [_Process() for _ in range(count)]
        for process in self._all:
            self._idle.put(process)

    def __enter__(self) -> Self:
        """End them on the way out."""
        return self

    def __exit__(self, *details: object) -> None:
        """End them."""
        for process in self._all:
            process.end()

    def call(self, prepare: Callable[[], Prepared], work: Callable[[Prepared, Item], Result], item: Item) -> Result:
        """See `Crew.call`."""
        process = self._idle.get()
        try:
            return process.call(prepare, work, item)
        finally:
            self._idle.put(process)


class _Process:
    """One process, and the line to it."""

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
        """Let it work, and wait."""
        try:
            self._connection.send((None if prepare is self._prepared else prepare, work, item))
            self._prepared = prepare
            failed, value = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        if failed:
            raise value
        return value

    def end(self) -> None:
        """End it now, whatever it does."""
        self._connection.close()
        self._process.kill()

    def _death(self) -> DataError:
        self._process.wait(5)
        if self._process.ran_out_of_memory:
            return DataError(
                "A process that reads the log was ended since the memory ran out: give more memory, or fewer cores "
                "(`taskset`)."
            )
        ending, words = self._process.ending(), self._process.last_words()
        return DataError(f"A process that reads the log {ending} ({words}): ingest it again.")


# Each of them has one processor; a pool of threads in each would fight for all of them.
ONE_THREAD = {"POLARS_MAX_THREADS": "1", "ARROW_IO_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
# Memory of one chunk is kept for the next: to get it from the system each time costs a tenth of all the work.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(64 << 20), "MALLOC_TRIM_THRESHOLD_": str(128 << 20)}


def crew_for(source: Source, processes: int | None = None) -> AbstractContextManager[Crew | None]:
    """Who works on a log: processes where they pay, else nobody but threads of this one.

    Processes take a second to start, and two cores are kept busy by threads as well. What is built of all rows in
    their order, and an archive, cannot be taken apart.

    Args:
        source: The log.
        processes: How many, 1 for none; None to decide here.
    """
    if source.schema.built_sequences:
        return nullcontext()
    if processes is None:
        cores = len(os.sched_getaffinity(0))
        processes = min(cores, MOST_PROCESSES, _parts(source)) if cores > 2 and is_long(source) else 1
    return Processes(processes) if processes > 1 else nullcontext()


def is_long(source: Source) -> bool:
    """Whether a log is worth more processes than this one, and can be taken apart: an archive is read as a whole."""
    if source.schema.built_sequences or sum(path.stat().st_size for path in source.paths) < _MANY_UNITS * UNIT_BYTES:
        return False
    return _parts(source) > 2


def _parts(source: Source) -> int:
    """About how many units the files of a log have."""
    return sum(path.stat().st_size // UNIT_BYTES if is_plain(path) else 1 for path in source.paths)


def on_crew(
    crew: Crew, prepare: Callable[[], Prepared], work: Callable[[Prepared, Item], Result]
) -> Callable[[Item], Result]:
    """The work on one item, done by whichever worker is idle."""
    return lambda item: crew.call(prepare, work, item)
