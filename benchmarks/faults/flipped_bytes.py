"""Bytes flipped at random places in the files of a home that the product's own command has filled.

Each flip inverts one to four neighbouring bytes of one file, as a disk that errs, and is undone after the examination.
A flip is missed if `shunter doctor --check` finds nothing. Left out are SQLite's databases, which have no checksums,
empty files, logs, and pages and figures among MLflow's artifacts.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import psutil

from benchmarks.faults.command import ROOT, Started
from benchmarks.faults.kills import References
from shunter.quarantine import FOLDER

POLL_SECONDS = 0.05
SKIPPED_SUFFIXES = {".db", ".db-wal", ".db-shm", ".lock", ".log", ".toml"}
SKIPPED_NAMES = {"looking", "lock", "job.yaml", "attempted"}
MODEL = ("artifacts", "data", "recommender")  # what of a registered model is signed


@dataclass(frozen=True)
class Flip:
    """One flip.

    Attributes:
        file: The file, relative to the home.
        first: Offset of the first byte.
        count: Bytes inverted.
        is_found: Whether the examination found damage.
    """

    file: str
    first: int
    count: int
    is_found: bool


def flipped_bytes(references: References, home: Path, flips: int, seed: int) -> list[Flip]:
    """Flip bytes in a home with a finished training and one that was killed halfway.

    Args:
        references: A finished training, whose home is copied, and its command.
        home: Folder of the copy.
        flips: How many flips.
        seed: Seed of the places.
    """
    shutil.copytree(references.first.home, home)
    started = Started((*references.arguments, "--seed", "1"), home)
    while started.is_running and not list(home.glob("runs/*/**/*.safetensors")):
        time.sleep(POLL_SECONDS)
    for process in started.tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    started.wait()
    command = [sys.executable, "-m", "benchmarks.faults.flipped_bytes", str(home), str(flips), str(seed)]
    environment = {**os.environ, "SHUNTER_HOME": str(home), "PREFECT_HOME": str(home / "prefect")}
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return [Flip(**one) for one in json.loads(done.stdout)]


def flip_and_examine(home: Path, flips: int, seed: int) -> list[Flip]:
    """Flip bytes in files of the home of this process, one flip at a time, and examine the home after each.

    Raises:
        ValueError: The home is damaged before the first flip.
    """
    from shunter.tasks.doctor import examine

    if before := [one for one in examine(mends=False) if one.fault is not None]:
        raise ValueError(f"The home is damaged before the first flip: {before[0].path}: {before[0].fault}")
    random, found = Random(seed), []
    for path in random.choices(checked_files(home), k=flips):
        first, count = random.randrange(path.stat().st_size), random.randint(1, 4)
        _flip(path, first, count)
        is_found = any(one.fault is not None for one in examine(mends=False))
        _flip(path, first, count)
        found.append(Flip(str(path.relative_to(home)), first, count, is_found))
    return found


def checked_files(home: Path) -> list[Path]:
    """Return the files of a home that carry a checksum."""
    return sorted(
        path for path in home.rglob("*") if path.is_file() and path.stat().st_size and _is_checked(path, home)
    )


def _is_checked(path: Path, home: Path) -> bool:
    inner = path.relative_to(home)
    if inner.parts[0] == FOLDER:
        return False
    if inner.parts[0] == "mlflow":
        return inner.parts[4:7] == MODEL
    is_log = path.parent == home or inner.parts[0] == "prefect"
    if is_log and path.name not in {"model.key", "model.key.check", "power_limits.json"}:
        return False
    return path.suffix not in SKIPPED_SUFFIXES and path.name not in SKIPPED_NAMES


def _flip(path: Path, first: int, count: int) -> None:
    stamp = path.stat()
    content = bytearray(path.read_bytes())
    content[first : first + count] = bytes(byte ^ 0xFF for byte in content[first : first + count])
    path.write_bytes(content)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


if __name__ == "__main__":
    print(json.dumps([asdict(one) for one in flip_and_examine(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))]))
