"""Warm start: a training run that starts from a trained model instead of random weights.

Ids may stand for other values than in the former model. Embedding rows are therefore matched by value: the caller, who
knows the vocabularies, passes the ids of each field that mean the same.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import load_model
from shunter.errors import CheckpointError
from shunter.models.altered_layers import keeps_weights
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.models.spec import Features

ROWS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class SharedRows:
    """Ids of one field with the same value in the new and the former model.

    Attributes:
        now: New ids, int64 `[ids]`, each at most once.
        former: Ids of the former model, int64 `[ids]`.
    """

    now: np.ndarray
    former: np.ndarray

    def of_tables(self, rows: int, former_rows: int) -> "SharedRows":
        """Convert matched ids to rows of two tables of these sizes; of ids that share a row, the first counts."""
        now, first = np.unique(self.now % rows, return_index=True)
        return SharedRows(now, self.former[first] % former_rows)


@dataclass(frozen=True)
class TransferredWeights:
    """Number of embedding rows that a model took over from another, and whether it took over all layers or none."""

    rows: int
    layers: bool


@dataclass(frozen=True)
class WarmStart:
    """Trained model from which a training run starts.

    Attributes:
        directory: Folder written by `shunter.engine.checkpoint.storage.save_model`.
        rows: Ids with the same meaning, for each field that owns an embedding table; other fields start anew.
        member: Number of the member, if `directory` holds an ensemble.
    """

    directory: Path
    rows: Mapping[str, SharedRows]
    member: int = 0

    @cached_property
    def identity(self) -> str:
        """Hash of the former weights and the row mapping: a training run resumes only with its own warm start."""
        found = hashlib.sha256(str(read_json(self.directory / "model.json").get("sha256")).encode())
        found.update(str(self.member).encode())
        for name in sorted(self.rows):
            rows = self.rows[name]
            found.update(name.encode() + rows.now.tobytes() + rows.former.tobytes())
        return found.hexdigest()

    def load(self) -> Model:
        """Load the former model; large tables are memory-mapped where possible, since they are copied part by part.

        Raises:
            CheckpointError: The model is missing, damaged or compressed, or has no such member.
        """
        found = load_model(self.directory, is_mapped=True)
        members = found.models if isinstance(found, Ensemble) else (found,)
        if not keeps_weights(found):
            raise CheckpointError(
                f"The model in {self.directory} is compressed, and compressed weights cannot be trained: "
                "continue from the uncompressed version, which its tag `compression.of` names."
            )
        if self.member >= len(members):
            raise CheckpointError(
                f"The model in {self.directory} is an ensemble of {len(members)} members and has no member "
                f"number {self.member}."
            )
        return members[self.member]

    @torch.no_grad()
    def apply(self, model: Model) -> TransferredWeights:
        """Copy the former weights into a model, in place; weights without a counterpart keep their initial values.

        The layers are copied only if both models have the same fields in the same order and the same architecture,
        because a layer's weights belong to positions in its input. Rows are copied if the tables have the same width.

        Raises:
            CheckpointError: The former model is missing or damaged.
        """
        former = self.load()
        rows = self._take_rows(model, former)
        spec = replace(former.spec, table_precision=model.spec.table_precision)
        is_alike = model.spec == spec and _without_sizes(model.features) == _without_sizes(former.features)
        if is_alike:
            model.layers.load_state_dict(former.layers.state_dict())
        return TransferredWeights(rows=rows, layers=is_alike)

    def _take_rows(self, model: Model, former: Model) -> int:
        shards = {shard.table: shard for shard in model.embeddings.initialised_shards()}
        numbers = {name: number for number, name in enumerate(_owners(model))}
        former_tables = tables_by_name(former)
        taken = 0
        for name in numbers.keys() & former_tables.keys() & self.rows.keys():
            shard, former_table = shards[numbers[name]], former_tables[name]
            table = shard.weight
            if table.shape[1] != former_table.shape[1]:
                continue
            shared = self.rows[name].of_tables(len(table), len(former_table))
            now, before = torch.from_numpy(shared.now), torch.from_numpy(shared.former)
            # Part by part, because a table may be larger than the free memory.
            for to, of in zip(now.split(ROWS_AT_ONCE), before.split(ROWS_AT_ONCE), strict=True):
                table[to.to(table.device)] = former_table[of].to(table)
            if shard.starts is not None:
                shard.starts.record_written(now)
            taken += len(shared.now)
        return taken


def tables_by_name(model: Model) -> dict[str, Tensor]:
    """Return the weights of each embedding table, `[rows, width]`, by the name of the field that owns it."""
    return dict(zip(_owners(model), model.embeddings.tables, strict=True))


def _owners(model: Model) -> list[str]:
    """Return the name of the field that owns each table."""
    return [field.name for field in model.features.categorical if field.table is None]


def _without_sizes(features: Features) -> Features:
    """Return the features with all table sizes 0, to compare only what determines a layer's input."""
    return replace(features, categorical=tuple(replace(field, rows=0) for field in features.categorical))
