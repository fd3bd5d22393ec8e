"""What a search has used in earlier attempts, as its folder keeps it."""

from dataclasses import dataclass
from pathlib import Path

from shunter.checked_json import json_object, read_or_quarantine

FILE = "used.json"  # by the trials
AROUND = "around.json"  # by baselines and members
COMMAND = "command.json"  # by all else of the command, and what its end is foreseen to take
# Of the minutes that the rest of the command can take from trials and trainings: without it a long measurement of the
# machine, or an exploration that came to nothing, would leave no time for a first trial.
MOST_OVERHEAD = 0.5


@dataclass(frozen=True)
class Used:
    """So much.

    Attributes:
        seconds: By its trials.
        joules: By its trials.
        around: Seconds of each step that trains around them within its minutes.
        command: Seconds of the command that belong to neither: its start, the choice of the placement, what is between.
        ending: Seconds that its end is foreseen to take.
    """

    seconds: float
    joules: float
    around: dict[str, float]
    command: float = 0.0
    ending: float = 0.0

    @property
    def around_seconds(self) -> float:
        """Of all these steps."""
        return sum(self.around.values())

    def most_seconds(self, of_command: float) -> float:
        """What trials and the steps around them may use of the time that the whole command has."""
        return of_command - min(self.command + self.ending, MOST_OVERHEAD * of_command)


def read_used(directory: Path) -> Used:
    """What the folder of a search tells; nothing where there is none yet, or a full disk has cut it off."""
    trials = _read(directory / FILE)
    known = trials if {"seconds", "joules"} <= trials.keys() else {"seconds": 0.0, "joules": 0.0}
    command = _read(directory / COMMAND)
    return Used(
        seconds=known["seconds"],
        joules=known["joules"],
        around=_read(directory / AROUND),
        command=command.get("command", 0.0),
        ending=command.get("ending", 0.0),
    )


def _read(file: Path) -> dict[str, float]:
    def parse(text: bytes) -> dict[str, float]:
        return {name: float(value) for name, value in json_object(text).items()}

    return read_or_quarantine(file, parse) or {}
