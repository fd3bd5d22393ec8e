"""What a search has used in earlier attempts, as its folder keeps it."""

import json
from dataclasses import dataclass
from pathlib import Path

FILE = "used.json"  # by the trials
AROUND = "around.json"  # by baselines and members


@dataclass(frozen=True)
class Used:
    """So much.

    Attributes:
        seconds: By its trials.
        joules: By its trials.
        around: Seconds of each step that trains around them within its minutes.
    """

    seconds: float
    joules: float
    around: dict[str, float]

    @property
    def around_seconds(self) -> float:
        """Of all these steps."""
        return sum(self.around.values())


def read_used(directory: Path) -> Used:
    """What the folder of a search tells; nothing where there is none yet, or a full disk has cut it off."""
    trials = _read(directory / FILE)
    known = trials if {"seconds", "joules"} <= trials.keys() else {"seconds": 0.0, "joules": 0.0}
    return Used(seconds=known["seconds"], joules=known["joules"], around=_read(directory / AROUND))


def _read(file: Path) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in json.loads(file.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
