"""Queue of processes that wait for accelerators of this machine, by priority; an entry ends with its process."""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict

from shunter.checked_json import read_checked, write_checked
from shunter.errors import DamagedFileError
from shunter.settings import Settings


class Waiter(BaseModel):
    """Queue entry of a waiting process.

    Attributes:
        name: Name of the flow run.
        pid: Process id.
        priority: Entries with a higher priority go first.
        wanted: Names of acceptable accelerators.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int
    priority: int
    wanted: tuple[str, ...]

    @property
    def description(self) -> str:
        """Return the queue entry as text, such as `train-ml-100k (process 4711, priority 2)`."""
        return f"{self.name} (process {self.pid}, priority {self.priority})"


@contextmanager
def in_queue(name: str, priority: int, wanted: Iterable[str]) -> Iterator[None]:
    """Register this process in the queue while the block runs."""
    waiter = Waiter(name=name, pid=os.getpid(), priority=priority, wanted=tuple(wanted))
    path = _folder() / f"{waiter.pid}-{uuid.uuid4().hex[:8]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = path.with_suffix(".json")
    with FileLock(path.with_suffix(".lock")):
        write_checked(entry, waiter.model_dump_json())  # other processes read the entry from now on
        try:
            yield
        finally:
            entry.unlink(missing_ok=True)
    path.with_suffix(".lock").unlink(missing_ok=True)


def is_wanted(names: Iterable[str]) -> bool:
    """Return True if a process waits for one of these accelerators, at any priority."""
    asked = set(names)
    return any(asked.intersection(one.wanted) for one in _waiting())


def first_in_queue(priority: int, wanted: Iterable[str]) -> Waiter | None:
    """Return the entry of highest priority, above `priority`, that waits for one of `wanted`; None if there is none."""
    asked = set(wanted)
    ahead = [one for one in _waiting() if one.priority > priority and asked.intersection(one.wanted)]
    return max(ahead, key=lambda one: one.priority, default=None)


def _waiting() -> Iterator[Waiter]:
    for entry in sorted(_folder().glob("*.json")):
        lock = FileLock(entry.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            try:
                yield read_checked(entry, Waiter.model_validate_json)
            except (OSError, DamagedFileError):  # the process has just left the queue
                continue
        else:  # its process was killed
            entry.unlink(missing_ok=True)
            lock.release()
            entry.with_suffix(".lock").unlink(missing_ok=True)


def _folder() -> Path:
    return Settings().locks / "waiting"
