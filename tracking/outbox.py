"""Outbox: queue on disk of writes that the tracking store could not accept yet.

    outbox/<store>/journal.jsonl    one line per write, in order
    outbox/<store>/delivered        number of delivered lines, and number of failures of the next line
    outbox/<store>/runs.json        runs created while the store was unreachable: local id and MLflow's id
    outbox/<store>/files/           artifacts of the writes
    outbox/<store>/refused.jsonl    writes that the store refused with an error, such as writes to a deleted run, and
                                    lines damaged by a power cut

A write may be delivered twice, for instance if a process is killed between the store's answer and its record. The
writes are idempotent, so that the second delivery changes nothing (`shunter.tracking.entries`). All processes of one
home share the outbox. The password of a store is never stored in a file; it is read from the environment.
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

LOCAL = "local-"  # prefix of the id of a run that is not in the store yet
RETRY_SECONDS = 10.0
MOST_FAILURES = 20  # number of failures of one write, while the store answers, after which the write is refused
AT_ONCE = 3  # failures of one write in one delivery attempt
Entry = dict[str, Any]
Deliver = Callable[[Entry], str | None]


class StoreAwayError(Exception):
    """Error of a write that failed because the store is unreachable; the write itself is valid."""


class WriteFailedError(StoreAwayError):
    """Error of a write that failed although the store answers; the cause may be the store or the write."""


@dataclass(frozen=True)
class _Place:
    """Delivery position in the journal.

    Attributes:
        journal: Digest of the journal's first line; a position in another journal is ignored.
        position: Number of lines that are delivered or refused.
        failures: Number of failures of the next line.
    """

    journal: str
    position: int = 0
    failures: int = 0


@dataclass(frozen=True)
class Delivery:
    """Numbers of delivered, refused and queued writes after a delivery attempt."""

    delivered: int
    refused: int
    waiting: int


class Outbox:
    """Queue of the writes for one store."""

    def __init__(self, store: str) -> None:
        self.store = without_secrets(store)
        home = settings().home
        # For a store within the home the name of the outbox does not depend on the path of the home.
        place = self.store.replace(str(home.resolve()), "$SHUNTER_HOME")
        self.directory = home / "outbox" / hashlib.sha256(place.encode()).hexdigest()[:12]
        self._journal = self.directory / "journal.jsonl"
        self._delivered = self.directory / "delivered"
        self._runs = self.directory / "runs.json"

    @property
    def is_empty(self) -> bool:
        """Return True if no write is queued."""
        return not self._journal.exists()

    def waiting(self) -> int:
        """Return the number of writes that wait for delivery to MLflow."""
        if self.is_empty:
            return 0
        with self._lock():
            lines = self._lines()
            return len(lines) - self._place(lines).position

    def append(self, entry: Entry) -> None:
        """Append a write to the journal of undelivered writes.

        Raises:
            TrackingError: The journal cannot be written.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self._lock():
                self._append_line(seal(json.dumps(entry)))
        except OSError as error:
            raise TrackingError(
                f"The tracking store {self.store} cannot be reached, and its pending entries cannot be "
                f"stored in {self.directory} ({error.strerror}): free some space there, or start the store "
                "again."
            ) from error

    def keep_file(self, path: Path) -> str:
        """Copy an artifact of a queued write into the outbox; return its path relative to the outbox."""
        target = self.directory / "files" / uuid.uuid4().hex / path.name
        target.parent.mkdir(parents=True)
        shutil.copyfile(path, target)
        return str(target.relative_to(self.directory))

    def real_id(self, run_id: str) -> str:
        """Return the store's id of a run created during an outage, if it is delivered; otherwise return `run_id`."""
        if not run_id.startswith(LOCAL):
            return run_id
        return self._known_runs().get(run_id, run_id)

    def with_store_ids(self, value: Any) -> Any:
        """Return a write, or a part of a write, with local run ids replaced by the known ids of the store."""
        if isinstance(value, str):
            return self.real_id(value)
        return {name: self.with_store_ids(part) for name, part in value.items()} if isinstance(value, dict) else value

    def is_due(self) -> bool:
        """Return True if the last delivery attempt is at least `RETRY_SECONDS` ago."""
        try:
            age_seconds = time.time() - (self.directory / "attempted").stat().st_mtime
        except OSError:
            return True
        return not 0 <= age_seconds < RETRY_SECONDS  # a negative age, after the clock is set back, does not wait

    def deliver(self, deliver: Deliver) -> Delivery:
        """Deliver the writes to the store in order, until the queue is empty or the store is unreachable.

        Args:
            deliver: Function that takes a write and returns the store's id of a created run, else None. The function
                raises `StoreAwayError` if the store is unreachable. Any other error means that the store refuses the
                write, which then goes to `refused.jsonl`.
        """
        if self.is_empty:
            return Delivery(0, 0, 0)
        with self._lock():
            with contextlib.suppress(OSError):
                (self.directory / "attempted").touch()
            self._known_runs()  # called first, since a damaged file resets the position to the first line
            lines = self._lines()
            place = before = self._place(lines)
            refused = 0
            try:
                while place.position < len(lines):
                    reason = self._reason_to_refuse(lines, place, deliver)
                    if reason is not None:
                        self._quarantine(lines[place.position], reason)
                        refused += 1
                    place = _Place(place.journal, place.position + 1)
                    self._note(place)
                self._journal.unlink()  # deleted first, so that files that remain after a kill belong to no journal
                self._delivered.unlink(missing_ok=True)
                shutil.rmtree(self.directory / "files", ignore_errors=True)
            except (StoreAwayError, OSError):
                pass  # OSError: a full disk; writes without a recorded delivery are delivered again
            return Delivery(place.position - before.position - refused, refused, len(lines) - place.position)

    def _reason_to_refuse(self, lines: list[bytes], place: _Place, deliver: Deliver) -> str | None:
        """Deliver the next line; return the reason if the store refuses the write, otherwise None."""
        try:
            entry = _entry(lines[place.position])
        except ValueError as error:
            return f"the line is damaged ({error})"
        for failures in range(place.failures + 1, place.failures + AT_ONCE + 1):
            try:
                opened = deliver(self.with_store_ids(entry))
            except WriteFailedError as error:
                self._note(_Place(place.journal, place.position, failures))
                if failures >= MOST_FAILURES and self._takes(lines[place.position + 1 :], deliver):
                    return str(error)
            except StoreAwayError:
                raise
            except Exception as error:  # any error, since later writes must not wait for a write that always fails
                return str(error)
            else:
                self._remember(entry, opened)
                return None
        raise StoreAwayError("a write fails")

    def _takes(self, lines: list[bytes], deliver: Deliver) -> bool:
        """Return True if the store accepts the write of the first line, so that only the previous write is at fault.

        The accepted write is delivered again in its turn.
        """
        try:
            entry = _entry(lines[0])
            self._remember(entry, deliver(self.with_store_ids(entry)))
        except (IndexError, ValueError, StoreAwayError):
            return False
        return True

    def _quarantine(self, line: bytes, reason: str) -> None:
        try:
            kept = _entry(line)
        except ValueError:
            kept = {"line": line.decode(errors="replace")}
        with (self.directory / "refused.jsonl").open("a") as stream:
            stream.write(json.dumps({"because": reason[:500], **kept}) + "\n")

    def _remember(self, entry: Entry, opened: str | None) -> None:
        """Record the store's id of a run that the write created."""
        if opened is not None:
            runs = {**self._known_runs(), entry["run_id"]: opened}
            write_checked(self._runs, json.dumps(runs), is_durable=True)

    def _known_runs(self) -> dict[str, str]:
        """Return the store's ids by local id of the runs created while the store was unreachable.

        A damaged file is quarantined. All writes are then delivered again from the first; no run is created twice.
        """
        is_there = self._runs.exists()
        known = read_or_quarantine(self._runs, json_object)
        if is_there and known is None:
            self._delivered.unlink(missing_ok=True)
        return known or {}

    def _append_line(self, line: str) -> None:
        """Append a complete line or nothing; an incomplete last line after a power cut becomes a separate line."""
        with self._journal.open("ab+", buffering=0) as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(end - 1, 0))
            left = (b"" if stream.read(1) in (b"", b"\n") else b"\n") + line.encode() + b"\n"
            try:
                while left:
                    left = left[stream.write(left) :]
                os.fsync(stream.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(stream.fileno(), end)
                raise

    def _lines(self) -> list[bytes]:
        """Return the complete lines of the journal, without a last line that a kill cut off."""
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


def _entry(line: bytes) -> Entry:
    return json_object(unseal(line))
