"""Results that are written down as they come, so that an interrupted measurement goes on where it stopped."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS


class Cache:
    """A file of JSON lines, one for each result; several processes may add to it, and a line cut short is overlooked.

    A result holds as long as its key says all that decides about it: who changes the code that makes it deletes the
    file.

    Args:
        path: Path of the file, created with the first result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        self._read_bytes = 0

    @classmethod
    def of(cls, name: str) -> "Cache":
        """The one beside the published results, which is not published itself."""
        RESULTS.mkdir(exist_ok=True)
        return cls(RESULTS / f"{name}.partial.jsonl")

    def get(self, key: Mapping[str, Any]) -> Any | None:
        """What is written down for a key; None is nothing."""
        self._read_on()
        return self._known.get(_text(key))

    def get_or_make(self, key: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """What is written down for a key, or else what is made now and written down; plain values for JSON."""
        known = self.get(key)
        if known is not None:
            return known
        value = make()
        with self._path.open("a") as file:
            # With a line break before it too: the line before may have been cut short by a kill.
            file.write("\n" + json.dumps({"key": key, "value": value}) + "\n")
        return json.loads(json.dumps(value))

    def _read_on(self) -> None:
        """Lines that were added since, also by other processes; a line that is not at its end yet is left for later."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # empty, or cut short
                continue
            self._known[_text(entry["key"])] = entry["value"]


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
