"""Difference between two trained models: the table rows that differ, all layers, and the vocabularies.

A model that continues training from a former model changes only the rows that its clicks look up. All other rows stay
equal, under the same or another id. Only the rows that differ must be sent to a server with the former model, exactly
or in few bits, like Check-N-Run's increments for inference (Eisenman et al., NSDI 2022).

Of a vocabulary, the difference is the former id of each value, and the keys of new values. Ids are ordered by
frequency, so most ids change from one ingestion to the next. A former id takes half the bytes of a key. Former ids are
not stored at all if the order of the known values is unchanged.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shunter.checked_json import parse_json
from shunter.engine.checkpoint.checkpoint_settings import FULL_PRECISION
from shunter.engine.checkpoint.quantise import QuantisedRows, quantise_rows, restore_rows
from shunter.engine.checkpoint.warm_start import SharedRows, tables_by_name
from shunter.errors import CheckpointError, DataError
from shunter.extensions.incremental_checkpoints.pieces import name_rows, read_rows
from shunter.ingestion.encoding.encoder import Encoder
from shunter.ingestion.encoding.learned_map import LearnedMap, read_learned_maps, write_vocabularies
from shunter.ingestion.encoding.vocabulary import Keys, VocabularyIds
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model

TABLES = "embeddings.weight"
BITS_OF = {torch.float32: torch.int32, torch.float16: torch.int16}  # integer type for bitwise comparison of rows
ROWS_AT_ONCE = 1 << 16
Arrays = dict[str, NDArray[np.int32] | NDArray[np.int64] | NDArray[np.uint8]]


@dataclass(frozen=True)
class ModelIncrement:
    """Delta that turns a former model into a new model.

    Attributes:
        bits: Bits of a number of the rows; 32 is full precision.
        tensors: Tensors by name: `layers.NAME` for weights above the tables, `rows.MEMBER.TABLE.PART` for rows that
            differ.
        origins: Member of the former model from which each table takes its unchanged rows: for each new member, by the
            name of the field that owns the table; None if there is no such table.
    """

    bits: int
    tensors: Mapping[str, Tensor]
    origins: list[dict[str, int | None]]


@dataclass
class Difference:
    """Figures of an increment.

    Attributes:
        rows: Rows of all tables.
        changed_rows: Rows in the increment.
        squared_error: Sum of squared quantisation errors of the changed rows.
        squared_sum: Sum of squares of the changed rows.
    """

    rows: int = 0
    changed_rows: int = 0
    squared_error: float = 0.0
    squared_sum: float = 0.0

    @property
    def row_error(self) -> float:
        """Relative quantisation error: RMS of the error over RMS of the changed rows."""
        return (self.squared_error / self.squared_sum) ** 0.5 if self.squared_sum else 0.0


@dataclass(frozen=True)
class _Source:
    """Table of the former model that a new table may take rows from."""

    member: int | None  # of the former model; None if no table is compatible
    table: Tensor  # [rows, width]
    former: Tensor  # row of `table` with the same meaning for each new row, int64 [rows]; -1 if there is none

    def differs(self, values: Tensor, numbers: Tensor) -> Tensor:
        """Return whether rows with these numbers differ from their former rows in any bit, bool `[rows]`."""
        parts = [torch.empty(0, dtype=torch.bool)]
        for some, at in zip(values.split(ROWS_AT_ONCE), numbers.split(ROWS_AT_ONCE), strict=True):
            former = self.former[at]
            parts.append(former < 0)
            if self.member is not None:
                there = self.table[former.clamp(min=0)].to(some)
                bits = BITS_OF[some.dtype]
                parts[-1] |= (some.contiguous().view(bits) != there.view(bits)).any(1)
        return torch.cat(parts)


@torch.no_grad()
def difference(
    now: Model | Ensemble, former: Model | Ensemble, shared: Mapping[str, SharedRows], bits: int = FULL_PRECISION
) -> tuple[ModelIncrement, Difference]:
    """Return the increment that turns `former` into `now`, and its figures.

    Args:
        now: New model, on the CPU.
        former: Former model, on the CPU.
        shared: Ids with the same meaning in both models, by the field that owns a table.
        bits: Bits per number in the rows of the increment; 32 is full precision.
    """
    tensors = {f"layers.{name}": tensor for name, tensor in now.state_dict().items() if not _is_table(name)}
    origins: list[dict[str, int | None]] = []
    figures = Difference()
    for number, member in enumerate(members_of(now)):
        found: dict[str, int | None] = {}
        for position, (name, table) in enumerate(tables_by_name(member).items()):
            every = torch.arange(len(table))
            sources = [*_sources(name, table, former, shared)]
            counted = [(source, source.differs(table, every)) for source in sources]
            source, differs = min(counted, key=lambda pair: int(pair[1].sum()))
            parts = _parts(table, every[differs], source, bits, figures)
            tensors |= {f"rows.{number}.{position}.{part}": tensor for part, tensor in parts.items()}
            found[name] = source.member
        origins.append(found)
    return ModelIncrement(bits, tensors, origins), figures


@torch.no_grad()
def apply_delta(
    former: Model | Ensemble, now: Model | Ensemble, shared: Mapping[str, SharedRows], increment: ModelIncrement
) -> None:
    """Apply an increment of `difference` to a former model, and load the weights into `now`; `former` does not change.

    Args:
        former: Former model.
        now: Model with the architecture of the new model; its weights are replaced.
        shared: Ids with the same meaning in both models, as passed to `difference`.
        increment: Increment to apply.

    Raises:
        CheckpointError: The increment belongs to other models.
    """
    tensors = increment.tensors
    try:
        for number, member in enumerate(members_of(now)):
            for position, (name, table) in enumerate(tables_by_name(member).items()):
                origin = increment.origins[number][name]
                for source in _sources(name, table, former, shared):
                    if source.member is not None and source.member == origin:
                        for at in (source.former >= 0).nonzero().view(-1).split(ROWS_AT_ONCE):
                            table[at] = source.table[source.former[at]].to(table)
                prefix = f"rows.{number}.{position}."
                parts = {key.removeprefix(prefix): part for key, part in tensors.items() if key.startswith(prefix)}
                if "weight" in parts:
                    values = parts["weight"]
                else:
                    quantised = QuantisedRows(parts["codes"], parts["scale"], parts["bias"])
                    values = restore_rows(quantised, increment.bits, table.shape[1])
                table[read_rows(parts, len(values))] = values.to(table)
        layers = {name: tensors[f"layers.{name}"] for name in now.state_dict() if not _is_table(name)}
        now.load_state_dict(layers, strict=False)
    except (KeyError, IndexError, ValueError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"The increment belongs to other models ({reason}): export it again.") from error


def members_of(model: Model | Ensemble) -> tuple[Model, ...]:
    """Return the members of an ensemble, or the single model."""
    return model.models if isinstance(model, Ensemble) else (model,)


def _is_table(name: str) -> bool:
    return name == TABLES or (name.startswith("members.") and name.endswith(f".{TABLES}"))


def _sources(name: str, table: Tensor, former: Model | Ensemble, shared: Mapping[str, SharedRows]) -> Iterator[_Source]:
    """Yield the tables of a field in the members of the former model; an empty source if none is compatible."""
    is_alone = True
    for index, member in enumerate(members_of(former)):
        there = tables_by_name(member).get(name)
        if name not in shared or there is None or there.shape[1] != table.shape[1]:
            continue
        rows = shared[name].of_tables(len(table), len(there))
        numbers = torch.full((len(table),), -1)
        numbers[torch.from_numpy(rows.now)] = torch.from_numpy(rows.former)
        yield _Source(index, there, numbers)
        is_alone = False
    if is_alone:
        yield _Source(None, table, torch.full((len(table),), -1))


def _parts(table: Tensor, numbers: Tensor, source: _Source, bits: int, figures: Difference) -> dict[str, Tensor]:
    """Return the rows of a table that differ as named tensors, and add their counts and errors to `figures`."""
    values = restored = table[numbers]
    parts = {"weight": values}
    if bits != FULL_PRECISION and len(numbers):
        quantised = quantise_rows(values.float(), bits)
        restored = restore_rows(quantised, bits, table.shape[1]).to(table)
        is_new = source.differs(restored, numbers)  # all other rows already have these quantised values
        numbers, values, restored = numbers[is_new], values[is_new], restored[is_new]
        parts = {name: part[is_new] for name, part in vars(quantised).items()} if len(numbers) else {"weight": values}
    figures.rows += len(table)
    figures.changed_rows += len(numbers)
    figures.squared_error += float((restored - values).double().square().sum())
    figures.squared_sum += float(values.double().square().sum())
    return {**name_rows(numbers), **parts}


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
