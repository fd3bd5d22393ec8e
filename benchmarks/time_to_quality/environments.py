"""An environment for each rival, with the packages that `requirements/rivals.in` names for it."""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from shunter.settings import PROJECT_ROOT

REQUIREMENTS = PROJECT_ROOT / "requirements" / "rivals.in"


class InstallationError(Exception):
    """The packages of a rival cannot be installed here."""


@dataclass(frozen=True)
class Environment:
    """Where a rival runs.

    Attributes:
        python: Its interpreter.
        versions: The packages that were resolved, as `pip freeze` lists them.
    """

    python: Path
    versions: tuple[str, ...]


def requirements_of(rival: str, text: str | None = None) -> list[str]:
    """What the environment of a rival is asked to hold.

    Args:
        rival: Name in the markers.
        text: A requirements file; None reads `requirements/rivals.in`.

    Raises:
        ValueError: No line names the rival.
    """
    lines = (REQUIREMENTS.read_text() if text is None else text).splitlines()
    asked = [Requirement(line.partition("#")[0]) for line in lines if line.partition("#")[0].strip()]
    own = [one for one in asked if one.marker is not None and one.marker.evaluate({"extra": rival})]
    if not own:
        raise ValueError(f"{REQUIREMENTS.name} names no package for {rival}: give it a line with its marker")
    return [f"{one.name}{one.specifier}" for one in own]


def environment_of(rival: str, folder: Path | None = None) -> Environment:
    """The environment of a rival, made where it is not there yet; minutes the first time.

    Args:
        rival: Name in the markers of the requirements.
        folder: Folder of the environments; None is the user's cache.

    Raises:
        InstallationError: The packages cannot be installed; the message is the last line of what pip said.
    """
    asked = requirements_of(rival)
    key = hashlib.sha256("\n".join([sys.version, *asked]).encode()).hexdigest()[:8]
    place = (cache_folder() if folder is None else folder) / f"{rival}-{key}"
    python, frozen = place / "bin" / "python", place / "frozen.txt"
    if not frozen.exists():
        print(f"Installing {' '.join(asked)} into {place} ...", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(place)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *asked])
        frozen.write_text(_run([str(python), "-m", "pip", "freeze", "--disable-pip-version-check"]))
    return Environment(python=python, versions=tuple(frozen.read_text().split()))


def cache_folder() -> Path:
    """Where the environments are kept: outside the repository, as they are gigabytes and no part of it."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "shunter" / "rivals"


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallationError((done.stderr.strip() or done.stdout.strip() or "pip said nothing").splitlines()[-1])
    return done.stdout
