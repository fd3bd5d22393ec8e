"""Difference between the vocabularies of two encoders: the former id of each value, and the keys of new values.

Ids are ordered by frequency, so most ids change from one ingestion to the next. A former id takes half the bytes of a
key. Former ids are not stored at all if the order of the known values is unchanged.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shunter.checked_json import parse_json
from shunter.errors import DataError
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.learned_map import LearnedMap, read_learned_maps, write_vocabularies
from shunter.ingestion.encoding.vocabulary import Keys, VocabularyIds

Arrays = dict[str, NDArray[np.int32] | NDArray[np.int64] | NDArray[np.uint8]]


def vocabulary_increment(now: Encoder, former: Encoder) -> Arrays:
    """Return the arrays that convert the vocabularies of `former` into those of `now`.

    Returns:
        Arrays by name. `keys.FIELD`: the new keys of a field with a vocabulary, as int64 with the same bits.
        `former.FIELD`: int32, former id of each value, 0 for new values. This array is omitted if all known values come
        first in unchanged order. `learned.PART.FIELD`: the complete learned map of a field, if the map changed.
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
    """Rebuild the `vocabulary.npz` of an `encoder.json` from the former encoder and the increment.

    Args:
        directory: Folder of the new encoder, with its `encoder.json`.
        former: Former encoder.
        arrays: Arrays of `vocabulary_increment`.

    Raises:
        DataError: The increment does not match `former`, or `encoder.json` or a learned map cannot be read.
    """
    known = _vocabularies(former)
    vocabularies: list[Keys] = []
    owners, learned = _owners(directory)
    for field in owners:
        new_keys = np.ascontiguousarray(arrays.get(f"keys.{field}", ()), np.int64).view(np.uint64)
        there = known[field].keys if field in known else np.empty(0, np.uint64)
        before = arrays.get(f"former.{field}", _in_order(len(there), len(there) + len(new_keys)))
        if int((before == 0).sum()) != len(new_keys) or before.max(initial=0) > len(there):
            raise DataError(
                f"The vocabulary of {field!r} in the increment belongs to another model: export the increment again."
            )
        keys = np.empty(len(before), np.uint64)
        keys[before == 0] = new_keys
        keys[before > 0] = there[before[before > 0] - 1]
        vocabularies.append(keys)
    try:
        maps = _learned(former) | read_learned_maps(arrays)
        write_vocabularies(directory, vocabularies, {field: maps[field] for field in learned})
    except (ValueError, KeyError) as error:
        raise DataError(
            "A learned map from values to table rows in the increment cannot be read: export the increment again."
        ) from error


def _in_order(known: int, new: int) -> NDArray[np.int64]:
    """Return the former id of each of `new` values if the known ones come first: 1 to `known`, then zeros."""
    return np.r_[1 : known + 1, np.zeros(max(new - known, 0), np.int64)]


def _owners(directory: Path) -> tuple[list[str], list[str]]:
    """Return the fields with a vocabulary and the fields with a learned map, in the order of `encoder.json`."""
    try:
        fields = [
            field
            for field in parse_json((directory / "encoder.json").read_text())["categorical"]
            if all(field.get(key) is None for key in ("hash_size", "table", "edges"))  # no hashed, shared, bucket ids
        ]
        learned = [field["name"] for field in fields if field.get("is_learned")]
        return [field["name"] for field in fields if field["name"] not in learned], learned
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"The increment {directory} holds no readable encoder: export the increment again.") from error


def _vocabularies(encoder: Encoder) -> dict[str, VocabularyIds]:
    """Return the vocabularies by owning field, in the order of the encoder."""
    own = [field for field in encoder.categorical if field.table is None]
    return {field.name: field.ids for field in own if isinstance(field.ids, VocabularyIds)}


def _learned(encoder: Encoder) -> dict[str, LearnedMap]:
    """Return the learned maps by owning field."""
    return {
        field.name: field.ids for field in encoder.categorical if isinstance(field.ids, LearnedMap) and not field.table
    }
