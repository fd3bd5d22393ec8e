"""Worker processes on the nodes of a Ray cluster, which copy objects and read parts of the log in a shared folder.

A crew is a set of workers that process items in parallel. A node joins it if it can read the same log files as this
machine, and write to the same cache of data sets. If a node dies, another node repeats its item, because writing the
same bytes twice to the same file is harmless.
"""

import logging
import os
import queue
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shunter.errors import DataError, ShunterError, first_line
from shunter.extensions.distributed.links.nodes import ClusterNode, alive_nodes, connected, node_of, placed
from shunter.ingestion.batch import Source
from shunter.ingestion.sources.addresses import copy_objects
from shunter.ingestion.sources.guard import is_foreign_request
from shunter.ingestion.worker import Worker
from shunter.ingestion.workers import (
    KEPT_MEMORY,
    MOST_PROCESSES,
    ONE_THREAD,
    Crew,
    Item,
    Prepared,
    Result,
    crew_for,
    on_crew,
)
from shunter.parallel import ordered_map
from shunter.requests import ClusterRequest
from shunter.settings import Settings

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # a process on a node starts within seconds; without free cores it may wait for hours
MOST_LOSSES = 3  # lost processes per unit: a unit that ends its process on every node is itself the cause


@contextmanager
def crew_of_nodes(request: ClusterRequest, source: Source, cache: Path) -> Iterator[Crew | None]:
    """Yield a crew of worker processes on a cluster's nodes, or on this machine if it has at least as many cores.

    Raises:
        HardwareError: No cluster answers.
    """
    assert request.cluster is not None, "a cluster is requested"
    with connected(request.cluster), ExitStack() as stack:
        crew = stack.enter_context(Nodes(_nodes(request.cluster_resource), source.paths, cache))
        if crew.count <= len(os.sched_getaffinity(0)):
            stack.close()
            crew = stack.enter_context(crew_for(source))
        yield crew


def copy_by_nodes(request: ClusterRequest, absent: Sequence[Path]) -> None:
    """Copy objects of a store on the nodes of a cluster, into the folder for local copies in SHUNTER_HOME.

    Only nodes that see this folder, on a shared file system, take part.

    Args:
        request: Names the cluster.
        absent: Paths of the local copies; those of objects that the nodes cannot read stay absent.

    Raises:
        HardwareError: No cluster answers.
    """
    assert request.cluster is not None, "a cluster is requested"
    folder = Settings().objects_directory
    folder.mkdir(parents=True, exist_ok=True)
    with connected(request.cluster), Nodes(_nodes(request.cluster_resource), (), folder) as crew:
        if not crew.count:
            return
        copy = on_crew(crew, lambda: None, _copy)
        faults = [one for one in ordered_map(copy, absent, workers=crew.count) if one]
    if faults:
        log.warning("Nodes could not copy %s of %s objects, such as: %s", len(faults), len(absent), faults[0])


def _copy(_: None, path: Path) -> str | None:
    """Copy an object; return the message of the error, if there is one."""
    try:
        copy_objects([path])
    except ShunterError as error:
        return str(error)
    return None


def _nodes(resource: str | None) -> list[ClusterNode]:
    """Return the live nodes; if `resource` is given, only nodes that were started with this Ray resource."""
    return [node_of(node, ()) for node in alive_nodes(resource)]


@dataclass(frozen=True)
class ExpectedFiles:
    """Files that a node must be able to access to take part.

    Attributes:
        files: Size in bytes and modification time in nanoseconds of each file of the log.
        mark: Marker file in the cache of data sets.
        content: Content of the marker file.
        folder: Working directory that relative paths start from.
    """

    files: dict[Path, tuple[int, int]]
    mark: Path
    content: str
    folder: Path

    def fault(self) -> str | None:
        """Return the first mismatch between this node's files and the expected ones; None if all files match."""
        for path, stamp in self.files.items():
            try:
                here = path.stat()
            except OSError as error:
                return f"does not see {path} ({error.strerror or error})"
            if (here.st_size, here.st_mtime_ns) != stamp:
                return f"sees {path} with another size or modification time"
        try:
            return None if self.mark.read_text() == self.content else f"sees another folder at {self.mark.parent}"
        except OSError as error:
            return f"does not see the cache {self.mark.parent} ({error.strerror or error})"


class NodeWorker(Worker):
    """Worker process on a node.

    Args:
        expected: Files that the node must be able to access.
        is_restricted: Whether the worker reads only paths that requests of other users of this machine may read.
    """

    def __init__(self, expected: ExpectedFiles, *, is_restricted: bool) -> None:
        super().__init__(is_restricted=is_restricted)
        with suppress(OSError):  # `fault` reports a missing folder
            os.chdir(expected.folder)
        self._expected = expected

    def fault(self) -> str | None:
        """Return the first mismatch between this node's files and the expected ones; None if all files match."""
        return self._expected.fault()


@dataclass(eq=False)
class _WorkerHandle:
    """Handle of this process to a worker process on a node."""

    node: str
    actor: Any
    prepared: object = None


class Nodes:
    """Worker processes on the nodes of a cluster, one per core; a context manager that ends the processes.

    The class needs a connection to the cluster, see `shunter.extensions.distributed.links.nodes.connected`.

    Args:
        nodes: The nodes; a node that does not see the log or the cache is skipped with a warning.
        paths: Files of the log.
        cache: Folder of the data sets, which the nodes must be able to access too.
    """

    def __init__(self, nodes: Sequence[ClusterNode], paths: Sequence[Path], cache: Path) -> None:
        self._mark = cache / f".{uuid.uuid4().hex}.seen"
        stamps = {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}
        self._mark.write_text(self._mark.name)
        self._hands = self._start(nodes, ExpectedFiles(stamps, self._mark, self._mark.name, Path.cwd()))
        self.count = len(self._hands)
        self._idle: queue.SimpleQueue[_WorkerHandle | None] = queue.SimpleQueue()
        for hand in self._hands:
            self._idle.put(hand)

    def __enter__(self) -> Self:
        """Return this object; leaving the context ends the processes."""
        return self

    def __exit__(self, *details: object) -> None:
        """End the processes and delete the marker file."""
        import ray

        self._mark.unlink(missing_ok=True)
        for hand in self._hands:
            ray.kill(hand.actor)

    def call(self, prepare: Callable[[], Prepared], work: Callable[[Prepared, Item], Result], item: Item) -> Result:
        """Process an item on an idle worker; if the worker is lost, another worker repeats the item.

        Without any worker left, this process does the work. See `Crew.call`.

        Raises:
            DataError: `MOST_LOSSES` processes were lost while they processed this item.
        """
        import ray
        from ray.exceptions import RayError

        for loss in range(1, MOST_LOSSES + 1):
            hand = self._idle.get()
            if hand is None:
                self._idle.put(None)  # wakes the next thread that waits for a process
                break
            try:
                asked = hand.actor.do.remote(None if prepare is hand.prepared else prepare, work, item)
                failed, answer = ray.get(asked)
                hand.prepared = prepare
                if failed:
                    raise answer
            except RayError as error:
                self._give_up(hand, error)
                if loss == MOST_LOSSES:
                    raise DataError(
                        f"A part of the log could not be read: {loss} nodes in turn lost the process that "
                        f"read it ({first_line(error)}). See the logs of node {hand.node}, or ingest "
                        "without --cluster."
                    ) from error
            except BaseException:
                self._idle.put(hand)
                raise
            else:
                self._idle.put(hand)
                return answer
        return work(prepare(), item)

    def _give_up(self, hand: _WorkerHandle, error: Exception) -> None:
        """Remove a lost process from the crew."""
        import ray

        self._hands.remove(hand)
        ray.kill(hand.actor)  # the process may still be alive
        log.warning(
            "A process that read the log on node %s was lost (%s): another process reads its part.",
            hand.node,
            first_line(error),
        )
        if not self._hands:
            self._idle.put(None)

    def _start(self, nodes: Sequence[ClusterNode], expected: ExpectedFiles) -> list[_WorkerHandle]:
        """Start a worker per core of each node; return the ones that see log and cache after `START_SECONDS` at most.

        The other workers are ended, with one warning per node and fault.
        """
        import ray
        from ray.exceptions import RayError

        environment = {"env_vars": ONE_THREAD | KEPT_MEMORY | {"SHUNTER_HOME": str(Settings().home)}}
        started: list[tuple[_WorkerHandle, Any]] = []
        for node in nodes:
            options = {"num_cpus": 1, "runtime_env": environment, **placed(node.node_id)}
            for _ in range(min(int(node.resources.get("CPU", 0)), MOST_PROCESSES)):
                actor: Any = (
                    ray.remote(NodeWorker).options(**options).remote(expected, is_restricted=is_foreign_request())
                )
                started.append((_WorkerHandle(node.name, actor), actor.fault.remote()))
        ray.wait([answer for _, answer in started], num_returns=len(started), timeout=START_SECONDS)
        found, told = [], set()
        for hand, answer in started:
            try:
                fault = ray.get(answer, timeout=0)
            except RayError as error:
                fault = f"starts no process in {START_SECONDS:.0f} s ({first_line(error)})"
            if fault is None:
                found.append(hand)
                continue
            ray.kill(hand.actor)
            if (hand.node, fault) not in told:
                told.add((hand.node, fault))
                log.warning("Node %s is not used to read the log: it %s.", hand.node, fault)
        return found
