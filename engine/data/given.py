"""Pretrained vectors of a data set: initial embeddings for some ids of a table, instead of random ones."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from shunter.checked_folder import verify_file
from shunter.checked_json import parse_json
from shunter.engine.data.arrays import damage_reported
from shunter.engine.data.dataset import Dataset

FOLDER = "vectors"


@dataclass(frozen=True, kw_only=True)
class GivenVectors:
    """Pretrained vectors of one embedding table.

    Attributes:
        field: Field that owns the table.
        table: Number of the table.
        width: Number of floats in a vector.
        is_frozen: Whether the table is not trained.
        given: Number of ids that have a vector.
        ids: Number of ids of the table without id 0, which has no vector.
        unused: Number of vectors for values that do not occur in the training part.
    """

    field: str
    table: int
    width: int
    is_frozen: bool
    given: int
    ids: int
    unused: int

    @property
    def sentence(self) -> str:
        """Sentence that says how many ids have a pretrained vector."""
        share = self.given / max(self.ids, 1)
        unused = f"; {self.unused:,} vectors belong to values that do not occur in training" if self.unused else ""
        others = "keep their random initial values" if self.is_frozen else "begin as usual"
        known = f"{self.given:,} of {self.ids:,} ids of {self.field} ({share:.1%}) have a given vector"
        return f"{known}, the others {others}{unused}."


def save_given(folder: Path, given: GivenVectors, vectors: np.ndarray) -> None:
    """Save the pretrained vectors of a table, with their description.

    Args:
        folder: Subfolder `FOLDER` of the data set; created if missing.
        given: Description of the vectors.
        vectors: float32 `[rows of the table, width]`, NaN for an id without a vector.
    """
    folder.mkdir(exist_ok=True)
    np.save(folder / f"{given.table}.npy", vectors)
    (folder / f"{given.table}.json").write_text(json.dumps(asdict(given)))


def given_vectors(dataset: Dataset) -> list[GivenVectors]:
    """Return the descriptions of the pretrained vectors of a data set, in the order of their tables."""
    files = sorted((dataset.directory / FOLDER).glob("*.json"))
    found = []
    for path in files:
        with damage_reported(path):
            verify_file(path)
            found.append(GivenVectors(**parse_json(path.read_text())))
    return sorted(found, key=lambda one: one.table)
