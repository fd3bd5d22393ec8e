"""What changed between the vocabularies of two encoders: where each value was before, and the values that are new.

The ids of a field go by frequency, so that those of most values change from one ingest to the next; a place among the
former ones takes half the bytes of a key, and none at all where the order is the same.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.errors import DataError
from shunter.ingestion.encoding.encoder import Encoder, write_vocabularies
from shunter.ingestion.encoding.learned import LearnedIds, learned_ids
from shunter.ingestion.encoding.vocabulary import Keys, VocabularyIds

Arrays = dict[str, NDArray[np.int32] | NDArray[np.int64] | NDArray[np.uint8]]


def vocabulary_increment(now: Encoder, former: Encoder) -> Arrays:
    """Find what makes the vocabularies of `now` of those of `former`.

    Returns:
        By name: for each field with a vocabulary the keys that are new (`keys.FIELD`, int64, the same bits), and the
        former id of each value, 0 of new ones (`former.FIELD`), which is left out where all that were known come first
        in their order. Learned maps that changed are there whole (`learned.PART.FIELD`).
    """
    known = _vocabularies(former)
    arrays: Arrays = {}
    for name, ids in _vocabularies(now).items():
        before = known[name].ids(ids.keys) if name in known else np.zeros(len(ids.keys), np.int32)
        arrays[f"keys.{name}"] = ids.keys[before == 0].view(np.int64)
        if name in known and not np.array_equal(before, _in_order(len(known[name].keys), len(ids.keys))):
            arrays[f"former.{name}"] = before
    learned_before = _learned(former)
    for name, ids in _learned(now).items():
        if not ids.is_same(learned_before.get(name)):
            arrays |= {f"learned.{part}.{name}": array for part, array in ids.arrays.items()}
    return arrays


def write_extended(directory: Path, former: Encoder, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the `vocabulary.npz` that belongs to an `encoder.json`, as it was where the increment was made.

    Args:
        directory: Folder of the encoder, with its `encoder.json`.
        former: Encoder that is there already.
        arrays: What `vocabulary_increment` gave.

    Raises:
        DataError: The increment is one of another encoder.
    """
    known = _vocabularies(former)
    vocabularies: list[Keys] = []
    owners, learned = _owners(directory)
    for field in owners:
        new_keys = np.ascontiguousarray(arrays.get(f"keys.{field}", ()), np.int64).view(np.uint64)
        there = known[field].keys if field in known else np.empty(0, np.uint64)
        before = arrays.get(f"former.{field}", _in_order(len(there), len(there) + len(new_keys)))
        if int((before == 0).sum()) != len(new_keys) or before.max(initial=0) > len(there):
            raise DataError(f"The increment's values of {field!r} are those of another model: export it again.")
        keys = np.empty(len(before), np.uint64)
        keys[before == 0] = new_keys
        keys[before > 0] = there[before[before > 0] - 1]
        vocabularies.append(keys)
    try:
        maps = _learned(former) | learned_ids(arrays)
        write_vocabularies(directory, vocabularies, {field: maps[field] for field in learned})
    except (ValueError, KeyError) as error:
        raise DataError("A learned map of the increment cannot be read: export it again.") from error


def _in_order(known: int, new: int) -> NDArray[np.int64]:
    """Former ids of values of which all that were known keep theirs, and new ones follow."""
    return np.r_[1 : known + 1, np.zeros(max(new - known, 0), np.int64)]


def _owners(directory: Path) -> tuple[list[str], list[str]]:
    """Fields with a vocabulary of their own, and those with a learned map, in the order of a description."""
    try:
        fields = [
            field
            for field in json.loads((directory / "encoder.json").read_text())["categorical"]
            if all(field.get(key) is None for key in ("hash_size", "table", "edges"))  # ids that come of neither
        ]
        learned = [field["name"] for field in fields if field.get("is_learned")]
        return [field["name"] for field in fields if field["name"] not in learned], learned
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{directory} holds no readable encoder: export the increment again.") from error


def _vocabularies(encoder: Encoder) -> dict[str, VocabularyIds]:
    """Vocabularies by the field that owns them, in the order of the encoder."""
    own = [field for field in encoder.categorical if field.table is None]
    return {field.name: field.ids for field in own if isinstance(field.ids, VocabularyIds)}


def _learned(encoder: Encoder) -> dict[str, LearnedIds]:
    """Learned maps by the field that owns them."""
    return {
        field.name: field.ids for field in encoder.categorical if isinstance(field.ids, LearnedIds) and not field.table
    }
