"""The states that a folder of checkpoints can be gone back to: what each consists of, and whether it is whole.

    checkpoint.json                 the newest: state as numbers, and the names and checksums of its files
    checkpoint-{number}.json        the same, of each generation that is kept
    state-{number}.safetensors      layers, optimiser state, random state; the tables too where they are small
    rows-{number}-{part}.safetensors    rows of tables: all of them, or those touched since an earlier generation
    best-{step}-{number}.safetensors    weights with the best validation so far, where the tables are small

The rows may be divided into ranges, each with parts of its own. A generation names these in the order in which they are
laid one upon the other. Each part says by a hash which parts of its range it belongs upon, so that none is ever laid
upon another base. The best weights are those of an earlier
generation, whose files stay while they are the best.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from shunter.checked_json import json_object, unseal
from shunter.engine.checkpoint.growth import Content
from shunter.engine.checkpoint.storage import check_file, read_json, write_text
from shunter.errors import CheckpointError
from shunter.models.embeddings.initial_weights import RULE
from shunter.record import Record

FORMAT = 3
READ_FORMATS = (1, 2, FORMAT)  # the tables within the file of the state; all rows as one range
NEWEST = "checkpoint.json"
PATTERNS = ("state-*", "best-*", "rows-*", "*.tmp")


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file beside `checkpoint.json`."""

    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Part(Record):
    """Rows of the tables in some files.

    Attributes:
        content: Which rows.
        upon: Hash of the parts that this one is laid upon.
        files: Where they are.
        range: Number of the range of rows that it belongs to.
        left_out: By which rule the rows are drawn that nobody had asked for yet, which it leaves out; empty where it
            leaves none out.
    """

    content: Content
    upon: str
    files: tuple[StoredFile, ...]
    range: int = 0
    left_out: str = ""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A state that can be gone back to.

    Attributes:
        number: Counts up.
        identity: Properties that a training must share to go on from it.
        state: All that is neither weights, nor optimiser, nor random state, as plain values.
        tensors: The file of the layers.
        parts: The tables; empty where they are in `tensors`.
        history: What the policy of the parts goes by, for each range (`shunter.engine.checkpoint.touched`).
        best: The weights with the best validation so far; with `best_parts` the layers of the generation that had them.
        best_parts: The tables of that generation, which stay while they are the best; empty where they are in `best`.
        figures: What the checkpoints have cost so far.
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
        """Plain values, ready for JSON."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a generation's file.

        Raises:
            CheckpointError: It is missing, damaged or of another version.
        """
        return cls.of(read_json(path), path)

    @classmethod
    def of(cls, values: dict[str, Any], path: Path) -> Self:
        """From what the file `path` holds.

        Raises:
            CheckpointError: It is damaged or of another version.
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
            raise CheckpointError(f"The file {path} is no checkpoint of this version ({error}).") from error

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """All files that it consists of, each once."""
        rows = [file for part in (*self.parts, *self.best_parts) for file in part.files]
        return tuple(dict.fromkeys((self.tensors, *rows, *([self.best] if self.best else []))))

    def check(self, directory: Path) -> None:
        """Compare all files with their checksums, and the parts with what they are laid upon.

        Raises:
            CheckpointError: One is missing or damaged, or belongs upon other parts.
        """
        for parts in (self.parts, self.best_parts):
            check_upon(parts, directory)
        if self.parts and {part.range for part in self.parts} != set(range(max(len(self.history), 1))):
            raise CheckpointError(f"The checkpoint {directory} lacks the rows of a range of its tables: start anew.")
        for file in self.files:
            check_file(directory / file.name, file.sha256)


def history_of(values: Sequence[Any]) -> tuple[tuple[float, ...], ...]:
    """From JSON; where it does not say anything of ranges all rows are one."""
    return tuple(map(tuple, values)) if values and isinstance(values[0], list) else (tuple(values),)


def hash_of(parts: Sequence[Part]) -> str:
    """What a part that is laid upon some others says of them; empty where there are none."""
    if not parts:
        return ""
    names = "".join(file.sha256 for part in parts for file in part.files)
    return hashlib.sha256(names.encode()).hexdigest()


def parts_of_range(parts: Sequence[Part], number: int) -> tuple[Part, ...]:
    """Those of one range, in their order."""
    return tuple(part for part in parts if part.range == number)


def kept_upon(content: Content, parts: Sequence[Part], number: int) -> tuple[Part, ...]:
    """Those parts of a range that a new one is laid upon."""
    own = parts_of_range(parts, number)
    return {"full": (), "since_full": own[:1], "since_last": own}[content]


def check_upon(parts: Sequence[Part], directory: Path) -> None:
    """Compare parts with what they are laid upon.

    Raises:
        CheckpointError: One belongs upon others, or lacks rows that this version would draw otherwise.
    """
    if strange := {part.left_out for part in parts} - {"", RULE}:
        raise CheckpointError(
            f"The checkpoint {directory} leaves out rows that this version draws otherwise ({min(strange)}): start "
            "anew."
        )
    for number, part in enumerate(parts):
        if part.upon != hash_of(parts_of_range(parts[:number], part.range)):
            where = directory / part.files[0].name if part.files else directory
            raise CheckpointError(
                f"The rows in {where} were saved upon another checkpoint than the one they are named with: start anew."
            )


def generation_path(directory: Path, number: int) -> Path:
    """File of a generation."""
    return directory / f"generation-{number:06d}.json"


def generation_paths(directory: Path) -> list[Path]:
    """Files of all generations, the newest first."""
    return sorted(directory.glob("generation-*.json"), reverse=True)


def remove_older(directory: Path, keep: int, spared: frozenset[str] = frozenset()) -> None:
    """Remove all but the newest generations, and what no generation names.

    The list of a generation goes before its files, so that what is left of it after a kill is removed the next time.

    Args:
        directory: Their folder.
        keep: How many stay.
        spared: Files that stay in any case.
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
    """Names of the files that generations consist of; what cannot be read names none."""
    for path in paths:
        try:
            yield from (file.name for file in Generation.read(path).files)
        except CheckpointError:
            continue


def kept_bytes(directory: Path) -> int:
    """Bytes of all files of checkpoints in a folder."""
    return sum(path.stat().st_size for pattern in PATTERNS for path in directory.glob(pattern))


class GenerationsLayout:
    """How generations lie in a folder, to whoever copies them (`shunter.engine.checkpoint.remote.Layout`)."""

    def lists(self, names: Iterable[str]) -> list[str]:
        """Files of generations, the newest first."""
        return sorted((name for name in names if re.fullmatch(r"generation-\d+\.json", name)), reverse=True)

    def files(self, name: str, read: Callable[[str], bytes]) -> dict[str, str | None]:
        """The files that a generation consists of, with their sha256.

        Raises:
            CheckpointError: Its list is damaged.
        """
        try:
            values = json_object(unseal(read(name)))
        except ValueError as error:
            raise CheckpointError(f"The file {name} is damaged ({error}).") from error
        return {file.name: file.sha256 for file in Generation.of(values, Path(name)).files}

    def fetched(self, directory: Path, name: str) -> None:
        """Make a generation whose files have come the newest."""
        write_text(directory / NEWEST, (directory / name).read_text())
