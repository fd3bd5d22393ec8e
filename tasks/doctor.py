"""Check of a home: compare every stored file with its checksum, and quarantine files that can be recreated."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from shunter.checked_folder import MANIFEST, verify_folder
from shunter.checked_json import parse_json, unseal
from shunter.database import fault_of, quarantine_database
from shunter.engine.data.arrays import fault_of_result
from shunter.errors import DamagedFileError, ShunterError, TrackingError, first_line
from shunter.files import users_of
from shunter.quarantine import quarantine
from shunter.registry import Entry, Registry
from shunter.settings import Settings
from shunter.tasks.run_state import killed_runs
from shunter.tracking.registry.model_keys import check_model_key, record_of, stored_key_fault, stored_keys
from shunter.tracking.registry.signing import faults_of_models
from shunter.tracking.runs import INTERRUPTED, finish

# Parts of a home that extensions store: functions that compare the files of a folder. Capabilities: `folder` of the
# home; `advice` about damage.
HOME_PARTS = Registry(
    "part of a home",
    {
        "fleet policies": Entry(
            target="shunter.extensions.fleet.learned.file:check_policies",
            capabilities={"folder": "fleet", "advice": "Learn the policy again: shunter fleet learn."},
        ),
    },
    group="shunter.home_parts",
)


JSON_NAMES = {"dataset", "delivered", "ports"}  # JSON files without a suffix
WEIGHTS = "model.safetensors"  # file whose sha256 is in model.json beside it


class Action(StrEnum):
    """Function that repairs one part of a home."""

    NONE = "none"
    QUARANTINED = "quarantined"
    ENDED = "ended"
    IN_USE = "in use"
    REPORTED = "reported"


@dataclass(frozen=True)
class Finding:
    """Result of a check: a part of a home without damage, or one damaged file or folder."""

    part: str
    path: str
    files: int = 1
    fault: str | None = None
    action: Action = Action.NONE
    advice: str = ""

    @property
    def state(self) -> str:
        """Return `sound`, or `damaged` if there is a fault."""
        return "sound" if self.fault is None else "damaged"

    @property
    def is_settled(self) -> bool:
        """Return True if no damage remains to be repaired."""
        return self.fault is None or self.action in {Action.QUARANTINED, Action.ENDED}


@dataclass(frozen=True)
class Compared:
    """Result for a file, or for a folder with a manifest, that was compared.

    Attributes:
        path: Path of the file or folder.
        files: Number of files that were compared.
        fault: Description of the damage; None if there is none.
    """

    path: Path
    files: int = 1
    fault: str | None = None


def compare_frames(root: Path) -> Iterator[Compared]:
    """Compare stored data frames with the sha256, or its beginning, in the name of their file or folder."""
    for path in sorted(root.rglob("*")):
        expected = path.parent.name if "days" not in path.relative_to(root).parts else path.stem
        if path.is_file() and path.suffix != ".tmp":
            with path.open("rb") as content:
                found = hashlib.file_digest(content, "sha256").hexdigest()
            yield Compared(path, fault=None if found.startswith(expected) else "its sha256 is not the recorded one")


def compare_files(root: Path) -> Iterator[Compared]:
    """Compare a file, or the files at all depths of a folder, with their checksums, and yield a result for each.

    Files without a checksum are left out. A folder with a manifest of checksums yields one result.
    """
    sealed = {manifest.parent for manifest in root.rglob(MANIFEST)}
    for folder in sorted(sealed):
        fault = None
        try:
            verify_folder(folder)
        except DamagedFileError as error:
            fault = f"{error.path.name}: {error.reason}"
        except OSError as error:
            fault = first_line(error)
        yield Compared(folder, sum(1 for path in folder.rglob("*") if path.is_file()), fault)
    for path in [root] if root.is_file() else sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or not sealed.isdisjoint(path.parents):
            continue
        if (fault_of := _checks(path)) is not None:
            fault = fault_of(path)
            yield Compared(path, fault=fault)
            if fault is None and path.suffix == ".json":
                yield from _weights_named_in(path)


def _checks(path: Path) -> Callable[[Path], str | None] | None:
    if path.suffix in {".json", ".check"} or path.name in JSON_NAMES:
        return _fault_of_json
    return {".jsonl": _fault_of_lines, ".npy": fault_of_result}.get(path.suffix)


def _fault_of_json(path: Path) -> str | None:
    try:
        unseal(path.read_bytes())
    except (OSError, ValueError) as error:
        return first_line(error)
    return None


def _fault_of_lines(path: Path) -> str | None:
    content = path.read_bytes()
    if not content:
        return "it is empty"
    for number, line in enumerate(content.splitlines(), 1):
        try:
            unseal(line)
        except ValueError as error:
            return f"line {number}: {first_line(error)}"
    return None


def _weights_named_in(path: Path) -> Iterator[Compared]:
    """Compare each weight file with the SHA-256 that a JSON file records for it; yield the results."""
    for name, sha256 in _named_sums(parse_json(unseal(path.read_bytes()))):
        file = path.parent / (name or WEIGHTS)
        if file.suffix != ".safetensors" or not file.exists():  # an older generation may have been removed
            continue
        with file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        yield Compared(file, fault=None if found == sha256 else "its sha256 is not the recorded one")


def _named_sums(values: Any) -> Iterator[tuple[str, str]]:
    """Yield file names with their sha256 from stored JSON of any kind; an empty name means the model's own weights."""
    if isinstance(values, Mapping):
        if isinstance(values.get("sha256"), str):
            yield str(values.get("name", "")), values["sha256"]
        if isinstance(files := values.get("files"), Mapping):
            yield from ((name, file["sha256"]) for name, file in files.items())
        if isinstance(tensors := values.get("tensors"), str) and " " in tensors:  # form of the super-net
            yield tuple(tensors.split(maxsplit=1))  # pyright: ignore[reportReturnType]
        if isinstance(values.get("learnt"), list) and isinstance(values.get("checksum"), str):
            yield "policy.safetensors", values["checksum"]
        for name in ("tensors", "parts", "best", "best_parts", "files"):
            yield from _named_sums(values.get(name))
    elif isinstance(values, list):
        for value in values:
            yield from _named_sums(value)


@dataclass(frozen=True)
class Part:
    """Part of a home, with the functions that check and repair it.

    Attributes:
        name: Name of the part.
        path: Folder or file of the part.
        compare: Function that compares the files of the part with their checksums.
        advice: Advice about damage that cannot be repaired; empty if the files can be recreated.
        lock: Returns the lock that a command holds while it works on a file; None if there is none.
        move: Moves a damaged file into the quarantine.
    """

    name: str
    path: Path
    compare: Callable[[Path], Iterator[Compared]] = compare_files
    advice: str = ""
    lock: Callable[[Path], Path | None] = lambda _: None
    move: Callable[[Path, str], Path | None] = quarantine


def examine(*, mends: bool = True) -> list[Finding]:
    """Compare every stored file of the home with its checksum, and find runs that were killed.

    Args:
        mends: Whether to quarantine damaged files that can be recreated, and to end killed runs in MLflow.

    Returns:
        Findings: one for each damaged file and each killed run, and one for each part without damage.
    """
    found = [finding for part in parts(Settings()) for finding in _examined(part, mends=mends)]
    for folder, run_id in killed_runs():
        action = Action.REPORTED
        if mends:
            with contextlib.suppress(TrackingError):
                finish(run_id, INTERRUPTED, reason="Its process was killed.")  # so that the run can be resumed
                action = Action.ENDED
        fault = f"Its process was killed, and MLflow shows its run {run_id} as running"
        advice = "Give the same command again, which resumes the run."
        found.append(Finding("killed runs", str(folder), fault=fault, action=action, advice=advice))
    return found


def parts(settings: Settings) -> list[Part]:
    """Return all parts of a home that `shunter doctor` checks."""
    home, cache, runs, nights = (
        settings.home,
        settings.cache_directory,
        settings.runs_directory,
        settings.nights_directory,
    )
    prefect = Path(os.environ.get("PREFECT_HOME", home / "prefect"))
    store = settings.tracking_root / "mlflow.db"
    return [
        Part("data sets", cache, lock=lambda path: _lock_of(path, cache, cache / "locks")),
        Part("downloads", settings.downloads_directory),
        Part("frames", settings.frames_directory, compare_frames, advice="Remove the file, and give its rows again."),
        Part("profiles", settings.profile_directory),
        Part("traces", settings.traces_directory),
        Part("baselines", settings.baselines_directory),
        Part("data features", settings.data_features_directory),
        Part("operators", settings.operators_directory),
        Part("plans", settings.executed_plans.parent),
        Part("interrupted runs", runs, lock=lambda path: _lock_of(path, runs, runs)),
        Part("studies", runs, _databases, lock=lambda path: _lock_of(path, runs, runs), move=quarantine_database),
        Part("nights", nights, lock=lambda path: nights / path.relative_to(nights).parts[0] / "lock"),
        *(
            Part(name, home / str(about["folder"]), HOME_PARTS.load(name), advice=str(about["advice"]))
            for name, about in ((name, HOME_PARTS.entry(name).capabilities) for name in HOME_PARTS.names)
        ),
        Part("services", settings.services_directory),
        Part("leases", settings.locks),
        Part("power limits", home / "power_limits.json", advice="Compare the limits of the GPUs: nvidia-smi -q."),
        Part("outbox", home / "outbox", advice="Upload undamaged records and quarantine the others: shunter sync."),
        Part("Prefect", prefect, _databases, move=quarantine_database),
        Part("tracking store", store, _databases, advice=f"Restore {store} from a backup: it holds all runs."),
        Part(
            "passwords",
            store.with_name("basic_auth.db"),
            _databases,
            advice="Restore the file from a backup, or remove it and set the passwords again.",
        ),
        Part("model key", settings.model_key_path, _key, advice="Restore the key from a backup."),
        Part("record of the key", record_of(settings.model_key_path)),
        *(
            Part(
                "kept key",
                path,
                lambda path: iter([Compared(path, fault=stored_key_fault(path))]),
                advice="Restore the key from a backup.",
            )
            for path in stored_keys()
        ),
        Part(
            "registered models",
            settings.tracking_root / "artifacts" / "models",
            lambda folder: (Compared(path, fault=fault) for path, fault in faults_of_models(folder)),
            advice="Return to another version with `shunter rollback`, train the model again, or accept it "
            "with --accept.",
        ),
    ]


def _examined(part: Part, *, mends: bool) -> Iterator[Finding]:
    if not part.path.exists():
        return
    compared = list(part.compare(part.path))
    damaged = [one for one in compared if one.fault is not None]
    for one in damaged:
        finding = Finding(part.name, str(one.path), one.files, one.fault, Action.REPORTED, part.advice)
        yield _mended(part, one, finding) if mends and not part.advice else finding
    if compared and not damaged:
        yield Finding(part.name, str(part.path), sum(one.files for one in compared))


def _mended(part: Part, damaged: Compared, finding: Finding) -> Finding:
    """Quarantine a damaged file if it can be recreated and no command uses it; return the updated finding."""
    lock = part.lock(damaged.path)
    try:
        with contextlib.nullcontext() if lock is None else FileLock(lock, timeout=0):
            if users := users_of(damaged.path):
                return replace(finding, action=Action.IN_USE, advice=f"Again when process {users[0]} has ended.")
            moved = part.move(damaged.path, str(damaged.fault))
    except (Timeout, OSError):
        return replace(
            finding, action=Action.IN_USE, advice="Check again when the command that uses this file has ended."
        )
    if moved is None:
        return replace(finding, advice="The file cannot be moved: remove it, and it will be recreated.")
    return replace(
        finding, action=Action.QUARANTINED, advice=f"The file will be recreated; the damaged file is {moved}."
    )


def _lock_of(path: Path, folder: Path, locks: Path) -> Path | None:
    """Return the lock of the folder within `folder` that contains a path; None for a file outside these folders."""
    name = path.relative_to(folder).parts[0]
    return locks / f"{name}.lock" if (folder / name).is_dir() else None


def _databases(root: Path) -> Iterator[Compared]:
    for path in [root] if root.is_file() else sorted(root.rglob("*.db")):
        yield Compared(path, fault=fault_of(path))


def _key(path: Path) -> Iterator[Compared]:
    try:
        check_model_key()
    except ShunterError as error:
        yield Compared(path, fault=str(error))
    else:
        yield Compared(path)
