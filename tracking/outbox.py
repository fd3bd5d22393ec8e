"""What the tracking store could not take yet, kept in files until it can.

    outbox/<store>/journal.jsonl    one line a write, in their order
    outbox/<store>/delivered        how many lines of it the store has taken, and how often the next one has failed
    outbox/<store>/runs.json        runs that were opened while the store was away: their own id here, and MLflow's
    outbox/<store>/files/           artifacts of the writes
    outbox/<store>/refused.jsonl    writes that the store answered with an error of its own, such as a deleted run, and
                                    lines that a power cut has damaged

A write may be handed over twice, for instance when a process is killed between the store's answer and the note of it:
each says for itself what it is, so that the second time changes nothing (`shunter.tracking.entries`). All processes of
one home share the outbox. The password of a store is in no file: it comes from the environment again.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from shunter.checked_json import json_object, read_or_quarantine, seal, unseal, write_checked
from shunter.errors import TrackingError
from shunter.secrets import without_secrets
from shunter.settings import settings

LOCAL = "local-"  # how the id of a run begins that the store does not know yet
RETRY_SECONDS = 10.0
MOST_FAILURES = 20  # of one write while the store answers, then the others do not wait for it any longer
AT_ONCE = 3  # failures of one write in one attempt to deliver
Entry = dict[str, Any]
Deliver = Callable[[Entry], str | None]


class StoreAwayError(Exception):
    """The store did not take a write because it cannot be reached; not an error of the write."""


class WriteFailedError(StoreAwayError):
    """The store answers, and failed to take a write for once, which may be the fault of either."""


@dataclass(frozen=True)
class _Place:
    """How far the journal is delivered.

    Attributes:
        journal: Digest of the journal's first line: a place in another one does not count.
        position: Lines that are delivered or set aside.
        failures: How often the next line has failed.
    """

    journal: str
    position: int = 0
    failures: int = 0


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
        home = settings().home
        # A store within the home moves with it.
        self.directory = home / "outbox" / _key(self.store.replace(str(home.resolve()), "$SHUNTER_HOME"))
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
            lines = self._lines()
            return len(lines) - self._place(lines).position

    def append(self, entry: Entry) -> None:
        """Keep a write.

        Raises:
            TrackingError: not even the file can be written.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self._lock():
                self._append_line(seal(json.dumps(entry)))
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
        if not run_id.startswith(LOCAL):
            return run_id
        return self._known_runs().get(run_id, run_id)

    def known(self, value: Any) -> Any:
        """A write, or a part of it, with the store's own ids of runs."""
        if isinstance(value, str):
            return self.real_id(value)
        return {name: self.known(part) for name, part in value.items()} if isinstance(value, dict) else value

    def is_due(self) -> bool:
        """Whether the last attempt is long enough ago for another."""
        try:
            age_seconds = time.time() - (self.directory / "attempted").stat().st_mtime
        except OSError:
            return True
        return not 0 <= age_seconds < RETRY_SECONDS  # a clock that was put back would make it wait for that time

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
            with contextlib.suppress(OSError):
                (self.directory / "attempted").touch()
            self._known_runs()  # before the place is read: a damaged file means to begin at the first line
            lines = self._lines()
            place = before = self._place(lines)
            refused = 0
            try:
                while place.position < len(lines):
                    reason = self._reason_to_refuse(lines, place, deliver)
                    if reason is not None:
                        self._set_aside(lines[place.position], reason)
                        refused += 1
                    place = _Place(place.journal, place.position + 1)
                    self._note(place)
                self._clear()
            except (StoreAwayError, OSError):  # the latter: a full disk, where what was not noted is handed over again
                pass
            return Delivery(place.position - before.position - refused, refused, len(lines) - place.position)

    def _reason_to_refuse(self, lines: list[bytes], place: _Place, deliver: Deliver) -> str | None:
        """Hand the next line over; why it must be set aside, None where the store has it.

        Raises:
            StoreAwayError: The store shall be asked again later.
            OSError: What came of it cannot be noted.
        """
        try:
            entry = _entry(lines[place.position])
        except ValueError as error:
            return f"the line is damaged ({error})"
        for failures in range(place.failures + 1, place.failures + AT_ONCE + 1):
            try:
                opened = deliver(self.known(entry))
            except WriteFailedError as error:
                self._note(_Place(place.journal, place.position, failures))
                if failures >= MOST_FAILURES and self._takes(lines[place.position + 1 :], deliver):
                    return str(error)
            except StoreAwayError:
                raise
            except Exception as error:  # whatever it is: the others must not wait for one that will never be taken
                return str(error)
            else:
                self._remember(entry, opened)
                return None
        raise StoreAwayError("a write fails")

    def _takes(self, lines: list[bytes], deliver: Deliver) -> bool:
        """Whether the store takes the next write, and so would another; it is handed over again in its turn."""
        try:
            entry = _entry(lines[0])
            self._remember(entry, deliver(self.known(entry)))
        except (IndexError, ValueError, StoreAwayError):
            return False
        return True

    def _set_aside(self, line: bytes, reason: str) -> None:
        try:
            kept = _entry(line)
        except ValueError:
            kept = {"line": line.decode(errors="replace")}
        with (self.directory / "refused.jsonl").open("a") as stream:
            stream.write(json.dumps({"because": reason[:500], **kept}) + "\n")

    def _clear(self) -> None:
        """Everything is delivered."""
        self._journal.unlink()  # first: what is left of the rest belongs to no journal
        self._delivered.unlink(missing_ok=True)
        shutil.rmtree(self.directory / "files", ignore_errors=True)

    def _remember(self, entry: Entry, opened: str | None) -> None:
        """Note the store's id of a run that it has opened."""
        if opened is not None:
            runs = {**self._known_runs(), entry["run_id"]: opened}
            write_checked(self._runs, json.dumps(runs), is_durable=True)

    def _known_runs(self) -> dict[str, str]:
        """Return the store's ids of the runs that were opened while it was away.

        A damaged file is quarantined, and all writes are handed over again from the first, which opens no run twice.
        """
        is_there = self._runs.exists()
        known = read_or_quarantine(self._runs, json_object)
        if is_there and known is None:
            self._delivered.unlink(missing_ok=True)
        return known or {}

    def _append_line(self, line: str) -> None:
        """Write a line whole, or not at all; one that a power cut left without its end becomes a line of its own."""
        with self._journal.open("ab", buffering=0) as stream:
            end = stream.tell()
            left = (b"" if self._ends_whole(end) else b"\n") + line.encode() + b"\n"
            try:
                while left:
                    left = left[stream.write(left) :]
                os.fsync(stream.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(stream.fileno(), end)
                raise

    def _ends_whole(self, end: int) -> bool:
        if not end:
            return True
        with self._journal.open("rb") as stream:
            stream.seek(end - 1)
            return stream.read(1) == b"\n"

    def _lines(self) -> list[bytes]:
        """Complete lines: the last one may have been cut by a kill."""
        try:
            text = self._journal.read_bytes()
        except FileNotFoundError:  # another process has delivered it meanwhile
            return []
        return [line for line in text[: text.rfind(b"\n") + 1].split(b"\n") if line]

    def _place(self, lines: list[bytes]) -> _Place:
        journal = hashlib.sha256(lines[0]).hexdigest()[:16] if lines else ""

        def parse(text: bytes) -> _Place:
            found = json_object(text)
            return _Place(str(found["journal"]), int(found["position"]), int(found["failures"]))

        place = read_or_quarantine(self._delivered, parse)
        if place is None:
            return _Place(journal)
        return place if place.journal == journal and place.position <= len(lines) else _Place(journal)

    def _note(self, place: _Place) -> None:
        write_checked(self._delivered, json.dumps(asdict(place)), is_durable=True)

    def _lock(self) -> FileLock:
        return FileLock(self.directory / "lock")


def _key(store: str) -> str:
    return hashlib.sha256(store.encode()).hexdigest()[:12]


def _entry(line: bytes) -> Entry:
    return json_object(unseal(line))
