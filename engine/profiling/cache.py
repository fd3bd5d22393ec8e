"""Cache that stores a machine's profiles for a day, since a measurement takes seconds."""

import logging
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from pydantic import AwareDatetime

from shunter.checked_json import read_or_quarantine, write_checked
from shunter.frozen import Frozen
from shunter.hardware.types import HardwareProfile

log = logging.getLogger(__name__)

MAX_AGE = timedelta(days=1)
FORMAT = 3  # increased when a measurement changes, so that old figures are not used


class ProfileKey(Frozen):
    """Cache key of the profiles: a change of any field requires a new measurement."""

    host: str
    torch: str
    format: int

    @classmethod
    def of(cls, host: str) -> "ProfileKey":
        """Return the cache key of this process on the machine `host`."""
        return cls(host=host, torch=version("torch"), format=FORMAT)


class ProfileFile(Frozen):
    """Content of one cache file in `Settings().profile_directory`."""

    key: ProfileKey
    measured_at: AwareDatetime
    profiles: list[HardwareProfile]


def read_profiles(path: Path, key: ProfileKey, now: datetime | None = None) -> list[HardwareProfile] | None:
    """Return the profiles that were stored under `key` within the last day; None if there are none.

    A file that cannot be read or parsed is ignored with a log message.

    Args:
        path: Cache file of the machine.
        key: Cache key of the profiles.
        now: Time from which the age is computed; None: the current time.
    """
    kept = read_or_quarantine(path, ProfileFile.model_validate_json)
    if kept is None:
        return None
    age = (now or datetime.now(UTC)) - kept.measured_at
    fresh = timedelta(0) <= age <= MAX_AGE  # a time in the future means that a clock was wrong
    return kept.profiles if fresh and kept.key == key else None


def write_profiles(path: Path, key: ProfileKey, profiles: list[HardwareProfile]) -> None:
    """Store `profiles` atomically: a reader sees the old file or the whole new file."""
    content = ProfileFile(key=key, measured_at=datetime.now(UTC), profiles=profiles)
    write_checked(path, content.model_dump_json(indent=1))
