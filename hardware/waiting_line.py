"""Who waits for accelerators of this machine, and with what priority; an entry dies with its process."""

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
    """One that waits.

    Attributes:
        name: Name of the flow run.
        pid: Its process.
        priority: Whoever has a higher one goes first.
        wanted: Accelerators that would do.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int
    priority: int
    wanted: tuple[str, ...]

    @property
    def description(self) -> str:
        """For instance `train-ml-100k (process 4711, priority 2)`."""
        return f"{self.name} (process {self.pid}, priority {self.priority})"


@contextmanager
def in_line(name: str, priority: int, wanted: Iterable[str]) -> Iterator[None]:
    """Be known to wait for the length of the block."""
    waiter = Waiter(name=name, pid=os.getpid(), priority=priority, wanted=tuple(wanted))
    path = _folder() / f"{waiter.pid}-{uuid.uuid4().hex[:8]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = path.with_suffix(".json")
    with FileLock(path.with_suffix(".lock")):
        write_checked(entry, waiter.model_dump_json())  # only now does anybody look at it
        try:
            yield
        finally:
            entry.unlink(missing_ok=True)
    path.with_suffix(".lock").unlink(missing_ok=True)


def is_wanted(names: Iterable[str]) -> bool:
    """Whether anybody waits for something of this, whatever the priority."""
    asked = set(names)
    return any(asked.intersection(one.wanted) for one in _waiting())


def first_in_line(priority: int, wanted: Iterable[str]) -> Waiter | None:
    """Of those with a higher priority that wait for something of this, the one with the highest; None without any.

    Args:
        priority: Of whoever asks.
        wanted: Accelerators that would do.
    """
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
            except (OSError, DamagedFileError):  # it has just gone
                continue
        else:  # its process was killed
            entry.unlink(missing_ok=True)
            lock.release()
            entry.with_suffix(".lock").unlink(missing_ok=True)


def _folder() -> Path:
    return Settings().locks / "waiting"
