"""Comparison of stored files of any kind with their checksums, for `shunter.tasks.doctor`."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shunter.checked_folder import MANIFEST, verify_folder
from shunter.checked_json import parse_json, unseal
from shunter.engine.data.arrays import fault_of_result
from shunter.errors import DamagedFileError, first_line

JSON_NAMES = {"dataset", "delivered", "ports"}  # JSON files without a suffix
WEIGHTS = "model.safetensors"  # file whose sha256 is in model.json beside it


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
    """Compare files with their checksums, and yield a result for each.

    Files without a checksum are left out. A folder with a manifest of checksums yields one result.

    Args:
        root: A file, or a folder whose files are compared at all depths.
    """
    sealed = {manifest.parent for manifest in root.rglob(MANIFEST)}
    for folder in sorted(sealed):
        yield _folder(folder)
    for path in [root] if root.is_file() else sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or not sealed.isdisjoint(path.parents):
            continue
        if (fault_of := _checks(path)) is not None:
            fault = fault_of(path)
            yield Compared(path, fault=fault)
            if fault is None and path.suffix == ".json":
                yield from _weights_named_in(path)


def _folder(folder: Path) -> Compared:
    files = sum(1 for path in folder.rglob("*") if path.is_file())
    try:
        verify_folder(folder)
    except DamagedFileError as error:
        return Compared(folder, files, f"{error.path.name}: {error.reason}")
    except OSError as error:
        return Compared(folder, files, first_line(error))
    return Compared(folder, files)


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
