"""Interface of learned id maps (next to exact and hashed ids), and functions that learn and read the maps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.encoding.vocabulary import Keys
from shunter.registry import Entry, Registry

Arrays = dict[str, NDArray[np.int64] | NDArray[np.uint8]]

# `learn` is a function of a schema, the spilled rows of its log and the fitted fields; it returns the fields with their
# maps. `read` returns the maps by field from the arrays of a file.
LEARNED_MAPS = Registry(
    "learned map of ids",
    {
        "learn": Entry(target="shunter.extensions.learned_hashing.learned_maps:with_learned_maps"),
        "read": Entry(target="shunter.extensions.learned_hashing.learned_ids:learned_ids"),
    },
    group="shunter.learned_maps",
)
PREFIX = "learned."  # of the arrays of these maps in `vocabulary.npz`


class LearnedMap(ABC):
    """Id map (`shunter.ingestion.encoding.vocabulary.IdMap`) that learned which values share an id."""

    @property
    @abstractmethod
    def arrays(self) -> Arrays:
        """Arrays that define the map, to be stored in `vocabulary.npz`."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """Size of the learned map in bytes."""

    @property
    @abstractmethod
    def contents(self) -> str:
        """Numbers of ids with one value, with similar values, and with rare or new values, as text for messages."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of ids, which is the number of rows of the embedding table."""

    @abstractmethod
    def ids(self, keys: Keys) -> NDArray[np.int32]:
        """Return the id of each key, int32 [keys]."""

    @abstractmethod
    def is_same(self, other: object) -> bool:
        """Return True if `other` is a learned map that gives every value the same id."""


def read_learned_maps(stored: Mapping[str, NDArray[Any]]) -> dict[str, LearnedMap]:
    """Return the learned maps by field from the arrays of `write_vocabularies`; empty if there are none.

    Raises:
        MissingExtensionError: There are learned maps, and no extension reads them.
        ValueError: The arrays of a map are inconsistent.
        KeyError: An array of a map is missing.
    """
    return LEARNED_MAPS.load("read")(stored) if any(name.startswith(PREFIX) for name in stored) else {}


def write_vocabularies(
    directory: Path, vocabularies: Sequence[Keys], learned: Mapping[str, LearnedMap] | None = None
) -> None:
    """Write vocabularies and learned maps to `vocabulary.npz`."""
    ends = np.cumsum([0, *map(len, vocabularies)])
    keys = np.concatenate([np.empty(0, np.uint64), *vocabularies])
    arrays: dict[str, Any] = {"keys": keys, "ends": ends}
    for field, ids in (learned or {}).items():
        arrays |= {f"{PREFIX}{part}.{field}": array for part, array in ids.arrays.items()}
    np.savez(directory / "vocabulary.npz", **arrays)
