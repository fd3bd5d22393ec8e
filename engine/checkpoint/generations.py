"""Generations of checkpoints: the states that a training run can resume from, their files and their integrity.

    checkpoint.json                 newest generation: state as numbers, and names and checksums of its files
    generation-{number}.json        the same content for each kept generation
    state-{number}.safetensors      layers, optimizer state, random state; the tables too where they are small
    rows-{number}-{part}.safetensors    rows of tables: all rows, or those touched since an earlier generation
    best-{step}-{number}.safetensors    weights with the best validation so far, where the tables are small

The rows may be divided into ranges, each with its own parts. A generation names the parts in the order in which they
are applied. Each part holds a hash of the parts of its range that it is based on, so that a part is never applied to
another base. The best weights are those of an earlier generation, whose files stay while its weights are the best.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from shunter.checked_json import json_object, unseal
from shunter.engine.checkpoint.checked_files import check_file, read_json, write_text
from shunter.errors import CheckpointError
from shunter.models.embeddings.initial_weights import RULE
from shunter.record import Record

FORMAT = 3
READ_FORMATS = (1, 2, FORMAT)  # format 1: tables in the file of the state; format 2: all rows as one range
NEWEST = "checkpoint.json"
PATTERNS = ("state-*", "best-*", "rows-*", "*.tmp")

Content = Literal["full", "since_full", "since_last"]


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """Name and checksum of a file beside `checkpoint.json`."""

    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Part(Record):
    """Part of a checkpoint: embedding rows that one set of files holds.

    Attributes:
        content: Selection of the rows: all, or those touched since the last full part or the last part.
        upon: Hash of the parts that this part is applied to.
        files: Files of the rows.
        range: Number of the range of rows.
        left_out: Rule that initialises the rows that the part omits because they were never looked up; empty if the
            part omits no row.
    """

    content: Content
    upon: str
    files: tuple[StoredFile, ...]
    range: int = 0
    left_out: str = ""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Checkpoint generation: one state from which a training run can resume.

    Attributes:
        number: Number of the generation, ascending.
        identity: Properties that a training run must share to resume from the state.
        state: All state besides weights, optimizer and random state, as plain values.
        tensors: File of the layers.
        parts: Parts of the tables; empty if the tables are in `tensors`.
        history: Shares of rows stored by each checkpoint since the last full one, for each range of rows; the policy
            decides by them what the next part contains.
        best: File of the weights with the best validation so far; the layers only, if `best_parts` holds the tables.
        best_parts: Parts with the tables of the best weights; empty if the tables are in `best`.
        figures: Cost of the checkpoints so far.
    """

    number: int
    identity: dict[str, Any]
    state: dict[str, Any]
    tensors: StoredFile
    parts: tuple[Part, ...] = ()
    history: tuple[tuple[float, ...], ...] = ()
    best: StoredFile | None = None
    figures: dict[str, Any] | None = None
    best_parts: tuple[Part, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, ready for JSON."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the description of a checkpoint generation from its JSON file.

        Raises:
            CheckpointError: The file is missing, damaged or of another version.
        """
        return cls.of(read_json(path), path)

    @classmethod
    def of(cls, values: dict[str, Any], path: Path) -> Self:
        """Build a generation from the values of the JSON file `path`.

        Raises:
            CheckpointError: The values are damaged or of another version.
        """
        found = values.pop("format", None)
        try:
            if found not in READ_FORMATS:
                raise ValueError(f"its format is {found}")
            return cls(
                **{
                    "number": 0,
                    **values,
                    "tensors": StoredFile(**values["tensors"]),
                    "parts": tuple(map(Part.from_dict, values.get("parts", ()))),
                    "best": StoredFile(**values["best"]) if values["best"] else None,
                    "best_parts": tuple(map(Part.from_dict, values.get("best_parts", ()))),
                    "history": history_of(values.get("history", ())),
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"The file {path} is not a checkpoint of this version of Shunter ({error}): delete its folder and "
                "train again, or resume with the version that wrote it."
            ) from error

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """All files of the generation, each once."""
        rows = [file for part in (*self.parts, *self.best_parts) for file in part.files]
        return tuple(dict.fromkeys((self.tensors, *rows, *([self.best] if self.best else []))))

    def check(self, directory: Path) -> None:
        """Compare all files with their checksums, and the hash of each part with the parts that it is based on.

        Raises:
            CheckpointError: A file is missing or damaged, or a part is based on other parts.
        """
        for parts in (self.parts, self.best_parts):
            check_base_chain(parts, directory)
        if self.parts and {part.range for part in self.parts} != set(range(max(len(self.history), 1))):
            raise CheckpointError(
                f"The checkpoint {directory} lacks a range of embedding rows: delete the checkpoint and train again."
            )
        for file in self.files:
            check_file(directory / file.name, file.sha256)


def history_of(values: Sequence[Any]) -> tuple[tuple[float, ...], ...]:
    """Parse `Generation.history` from JSON; a flat list, as older files have, is one range of all rows."""
    return tuple(map(tuple, values)) if values and isinstance(values[0], list) else (tuple(values),)


def hash_of(parts: Sequence[Part]) -> str:
    """Return the hash by which a part refers to the parts that it is based on; empty if there are none."""
    if not parts:
        return ""
    names = "".join(file.sha256 for part in parts for file in part.files)
    return hashlib.sha256(names.encode()).hexdigest()


def parts_of_range(parts: Sequence[Part], number: int) -> tuple[Part, ...]:
    """Return the parts of a checkpoint that hold one range of rows, in their order."""
    return tuple(part for part in parts if part.range == number)


def base_chain(content: Content, parts: Sequence[Part], number: int) -> tuple[Part, ...]:
    """Return the parts of a range that a new part with this content is based on."""
    own = parts_of_range(parts, number)
    return {"full": (), "since_full": own[:1], "since_last": own}[content]


def check_base_chain(parts: Sequence[Part], directory: Path) -> None:
    """Compare each part's hash with the parts that it is based on.

    Raises:
        CheckpointError: A part is based on other parts, or omits rows that this version would initialise differently.
    """
    if strange := {part.left_out for part in parts} - {"", RULE}:
        raise CheckpointError(
            f"The checkpoint {directory} omits rows that this version of Shunter would initialise "
            f"differently ({min(strange)}): delete the checkpoint and train again."
        )
    for number, part in enumerate(parts):
        if part.upon != hash_of(parts_of_range(parts[:number], part.range)):
            where = directory / part.files[0].name if part.files else directory
            raise CheckpointError(
                f"The table rows in {where} are based on another checkpoint than its manifest states: "
                "delete the checkpoint and train again."
            )


def generation_path(directory: Path, number: int) -> Path:
    """Return the path of the JSON file that describes a checkpoint generation."""
    return directory / f"generation-{number:06d}.json"


def generation_paths(directory: Path) -> list[Path]:
    """Return the paths of the files of all generations, the newest first."""
    return sorted(directory.glob("generation-*.json"), reverse=True)


def remove_older(directory: Path, keep: int, spared: frozenset[str] = frozenset()) -> None:
    """Remove all but the `keep` newest generations, and checkpoint files that neither these nor `spared` name.

    The list of a generation is removed before its files, so that files left after a kill are removed the next time.
    """
    paths = generation_paths(directory)
    for path in paths[keep:]:
        if path.name not in spared:
            path.unlink(missing_ok=True)
    named = {path.name for path in paths[:keep]} | set(named_files(paths[:keep])) | spared
    for pattern in PATTERNS:
        for path in directory.glob(pattern):
            if path.name not in named:
                path.unlink(missing_ok=True)


def named_files(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the names of the files that the generations at `paths` list; skip an unreadable generation."""
    for path in paths:
        try:
            yield from (file.name for file in Generation.read(path).files)
        except CheckpointError:
            continue


def kept_bytes(directory: Path) -> int:
    """Return the bytes of all checkpoint files in a folder, without the JSON descriptions of the generations."""
    return sum(path.stat().st_size for pattern in PATTERNS for path in directory.glob(pattern))


class GenerationsLayout:
    """Layout of generations in a folder, for the remote copy (`shunter.engine.checkpoint.copies.Layout`)."""

    def lists(self, names: Iterable[str]) -> list[str]:
        """Select from `names` the JSON descriptions of generations, newest first."""
        return sorted((name for name in names if re.fullmatch(r"generation-\d+\.json", name)), reverse=True)

    def files(self, name: str, read: Callable[[str], bytes]) -> dict[str, str | None]:
        """Return the files of a checkpoint generation, with their sha256.

        Raises:
            CheckpointError: The list of files is damaged.
        """
        try:
            values = json_object(unseal(read(name)))
        except ValueError as error:
            raise CheckpointError(
                f"The checkpoint file {name} is damaged ({error}): delete its folder and train again."
            ) from error
        return {file.name: file.sha256 for file in Generation.of(values, Path(name)).files}

    def fetched(self, directory: Path, name: str) -> None:
        """Make a downloaded checkpoint generation the newest, after all its files have arrived."""
        write_text(directory / NEWEST, (directory / name).read_text())
