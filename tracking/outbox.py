"""What the tracking store could not take yet, kept in files until it can.

    outbox/<store>/journal.jsonl    one line a write, in their order
    outbox/<store>/delivered        how many lines of it the store has taken
    outbox/<store>/runs.json        runs that were opened while the store was away: their own id here, and MLflow's
    outbox/<store>/files/           artifacts of the writes
    outbox/<store>/refused.jsonl    writes that the store answered with an error of its own, such as a deleted run

All processes of one home share it. The password of a store is in no file: it comes from the environment again.
"""

import hashlib
import json
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from shunter.errors import TrackingError
from shunter.secrets import without_secrets
from shunter.settings import Settings

LOCAL = "local-"  # how the id of a run begins that the store does not know yet
RETRY_SECONDS = 10.0
Entry = dict[str, Any]
Deliver = Callable[[Entry], str | None]


class StoreAwayError(Exception):
    """The store did not take a write because it cannot be reached; not an error of the write."""


@dataclass(frozen=True)
class Delivery:
    """What an attempt to deliver came to."""

    delivered: int
    refused: int
    waiting: int


class Outbox:
    """The writes that wait for one store.

    Args:
        store: Address of the store.
    """

    def __init__(self, store: str) -> None:
        self.store = without_secrets(store)
        key = hashlib.sha256(self.store.encode()).hexdigest()[:12]
        self.directory = Settings().home / "outbox" / key
        self._journal = self.directory / "journal.jsonl"
        self._delivered = self.directory / "delivered"
        self._runs = self.directory / "runs.json"

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._journal.exists()

    def waiting(self) -> int:
        """How many writes wait."""
        if self.is_empty:
            return 0
        with self._lock():
            return len(self._lines()) - self._position()

    def append(self, entry: Entry) -> None:
        """Keep a write.

        Raises:
            TrackingError: not even the file can be written.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self._lock(), self._journal.open("a") as stream:
                stream.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise TrackingError(
                f"The tracking store {self.store} cannot be reached, and what it shall get cannot be kept in "
                f"{self.directory} ({error.strerror}): free some space there, or start the store again."
            ) from error

    def keep_file(self, path: Path) -> str:
        """Copy a file that a write is about; the name to find it by."""
        target = self.directory / "files" / uuid.uuid4().hex / path.name
        target.parent.mkdir(parents=True)
        shutil.copyfile(path, target)
        return str(target.relative_to(self.directory))

    def real_id(self, run_id: str) -> str:
        """The store's id of a run that was opened while it was away, when it has it by now; else the same."""
        if not run_id.startswith(LOCAL) or not self._runs.exists():
            return run_id
        return json.loads(self._runs.read_text()).get(run_id, run_id)

    def known(self, value: Any) -> Any:
        """A write, or a part of it, with the store's own ids of runs."""
        if isinstance(value, str):
            return self.real_id(value)
        return {name: self.known(part) for name, part in value.items()} if isinstance(value, dict) else value

    def is_due(self) -> bool:
        """Whether the last attempt is long enough ago for another."""
        try:
            return time.time() - (self.directory / "attempted").stat().st_mtime >= RETRY_SECONDS
        except OSError:
            return True

    def deliver(self, deliver: Deliver) -> Delivery:
        """Hand the writes to the store in their order, until all are or it is away again.

        Args:
            deliver: Function that takes a write and returns the store's id of a run that it opened. Raises
                `StoreAwayError` when the store is away, any other error when it refuses the write, which is then set
                aside.
        """
        if self.is_empty:
            return Delivery(0, 0, 0)
        with self._lock():
            (self.directory / "attempted").touch()
            lines, start = self._lines(), self._position()
            refused, position = 0, start
            for line in lines[start:]:
                try:
                    self._hand_over(json.loads(line), deliver)
                except StoreAwayError:
                    break
                except Exception as error:  # whatever it is: the others must not wait for one that will never be taken
                    refused += 1
                    with (self.directory / "refused.jsonl").open("a") as stream:
                        stream.write(json.dumps({"because": str(error)[:500], **json.loads(line)}) + "\n")
                position += 1
                self._delivered.write_text(str(position))
            if position == len(lines):
                self._journal.unlink()
                self._delivered.unlink(missing_ok=True)
                shutil.rmtree(self.directory / "files", ignore_errors=True)
            return Delivery(position - start - refused, refused, len(lines) - position)

    def _hand_over(self, entry: Entry, deliver: Deliver) -> None:
        opened = deliver(self.known(entry))
        if opened is not None:
            runs = json.loads(self._runs.read_text()) if self._runs.exists() else {}
            partial = self._runs.with_suffix(".partial")
            partial.write_text(json.dumps({**runs, entry["run_id"]: opened}))
            partial.replace(self._runs)

    def _lines(self) -> list[str]:
        """Complete lines: the last one may have been cut by a kill."""
        text = self._journal.read_text()
        return [line for line in text[: text.rfind("\n") + 1].splitlines() if line]

    def _position(self) -> int:
        try:
            return int(self._delivered.read_text())
        except (OSError, ValueError):
            return 0

    def _lock(self) -> FileLock:
        return FileLock(self.directory / "lock")
