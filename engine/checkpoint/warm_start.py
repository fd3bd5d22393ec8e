"""Starting a training from a trained model instead of from random weights.

Ids may stand for other values than when the former model was trained, so embedding rows are matched by what they stand
for: the caller, who knows the vocabularies, says which ids of a field mean the same.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.storage import load_model, read_json
from shunter.errors import CheckpointError
from shunter.models.compression.scheme import is_compressed
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.models.spec import Features


@dataclass(frozen=True)
class SharedRows:
    """Ids of one field that stand for the same value before and now.

    Attributes:
        now: Ids now, int64 `[ids]`, each at most once.
        former: Ids of the former model, int64 `[ids]`.
    """

    now: np.ndarray
    former: np.ndarray

    def of_tables(self, rows: int, former_rows: int) -> "SharedRows":
        """The same of rows of tables, where ids may share them: the first id of a row brings its own.

        Args:
            rows: Rows of the table now.
            former_rows: Rows of the former table.
        """
        now, first = np.unique(self.now % rows, return_index=True)
        return SharedRows(now, self.former[first] % former_rows)


@dataclass(frozen=True)
class Taken:
    """What a model took over from another.

    Attributes:
        rows: Number of embedding rows.
        layers: Whether all weights above the tables were taken, else none of them was.
    """

    rows: int
    layers: bool


@dataclass(frozen=True)
class WarmStart:
    """A trained model to go on from.

    Attributes:
        directory: Folder written by `shunter.engine.checkpoint.storage.save_model`.
        rows: Ids that mean the same, for each field that owns an embedding table; other fields start anew.
        member: Number of the model, where `directory` holds an ensemble.
    """

    directory: Path
    rows: Mapping[str, SharedRows]
    member: int = 0

    @cached_property
    def identity(self) -> str:
        """A hash of the weights and of what is taken from where: a training resumes only from its own start."""
        found = hashlib.sha256(str(read_json(self.directory / "model.json").get("sha256")).encode())
        found.update(str(self.member).encode())
        for name in sorted(self.rows):
            rows = self.rows[name]
            found.update(name.encode() + rows.now.tobytes() + rows.former.tobytes())
        return found.hexdigest()

    def load(self) -> Model:
        """The former model, its tables in their file where they can be: they are copied part by part.

        Raises:
            CheckpointError: It is missing, damaged, compressed, or has no such member.
        """
        found = load_model(self.directory, is_mapped=True)
        members = found.models if isinstance(found, Ensemble) else (found,)
        if is_compressed(found):
            raise CheckpointError(
                f"The model in {self.directory} is compressed, which leaves weights that cannot learn: go on from the "
                "version that it was made of, which its tag `compression.of` names."
            )
        if self.member >= len(members):
            raise CheckpointError(
                f"The model in {self.directory} has {len(members)} members and none of number {self.member}."
            )
        return members[self.member]

    @torch.no_grad()
    def apply(self, model: Model) -> Taken:
        """Take the former weights over, in place; what has no counterpart stays as it was initialised.

        The layers are taken only where both models see the same fields in the same order and are built alike, for a
        layer's weights belong to places in its input. Rows are taken where the tables have the same width.

        Raises:
            CheckpointError: The former model is missing or damaged.
        """
        former = self.load()
        rows = self._take_rows(model, former)
        spec = replace(former.spec, table_precision=model.spec.table_precision)
        is_alike = model.spec == spec and _without_sizes(model.features) == _without_sizes(former.features)
        if is_alike:
            model.layers.load_state_dict(former.layers.state_dict())
        return Taken(rows=rows, layers=is_alike)

    def _take_rows(self, model: Model, former: Model) -> int:
        shards = {shard.table: shard for shard in model.embeddings.begun_shards()}
        numbers = {name: number for number, name in enumerate(_owners(model))}
        former_tables = tables_by_name(former)
        taken = 0
        for name in numbers.keys() & former_tables.keys() & self.rows.keys():
            shard, former_table = shards[numbers[name]], former_tables[name]
            table = shard.weight
            if table.shape[1] != former_table.shape[1]:
                continue
            shared = self.rows[name].of_tables(len(table), len(former_table))
            _copy_rows(table, torch.from_numpy(shared.now), former_table, torch.from_numpy(shared.former))
            if shard.starts is not None:
                shard.starts.note_written(torch.from_numpy(shared.now))
            taken += len(shared.now)
        return taken


def tables_by_name(model: Model) -> dict[str, Tensor]:
    """Weights of each embedding table, `[rows, width]`, by the name of the field that owns it."""
    return dict(zip(_owners(model), model.embeddings.tables, strict=True))


def _owners(model: Model) -> list[str]:
    """The field that owns each table."""
    return [field.name for field in model.features.categorical if field.table is None]


def _without_sizes(features: Features) -> Features:
    """What a layer's input depends on: all of the features but the sizes of their tables."""
    return replace(features, categorical=tuple(replace(field, rows=0) for field in features.categorical))


def _copy_rows(target: Tensor, rows: Tensor, source: Tensor, source_rows: Tensor, at_once: int = 1 << 18) -> None:
    """Part by part: a table may be larger than the memory left."""
    for to, of in zip(rows.split(at_once), source_rows.split(at_once), strict=True):
        target[to.to(target.device)] = source[of].to(target)
