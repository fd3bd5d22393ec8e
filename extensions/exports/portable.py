"""Conversion of a click model to a module of plain tensor operations, for torch.export and ONNX."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.ensemble import Ensemble
from shunter.models.layers import AlignedLinear
from shunter.models.registry import Model

ROWS_AT_ONCE = 65_536  # number of table rows that are read at a time


class PortableLookup(nn.Module):
    """Embedding tables and their pooled lookup in plain tensor operations, without a custom kernel.

    Args:
        model: Model whose tables are copied.
    """

    tables: Tensor
    starts: Tensor

    def __init__(self, model: Model) -> None:
        super().__init__()
        fields = model.features.categorical
        self.histories = [model.positions is not None and field.length is not None for field in fields]
        self.widths = [field.length or 1 for field in fields]
        tables = whole_tables(model.embeddings)
        first_rows = torch.tensor([0, *(len(table) for table in tables)]).cumsum(0)
        self.register_buffer("tables", torch.cat(tables))
        self.register_buffer("starts", first_rows[list(model.features.table_of)])

    def rows_of(self, ids: Tensor) -> Tensor:
        """Return the row of each id, `[batch, fields, longest, dim]`, from int64 `[batch, fields, longest]`."""
        return self.tables[ids + self.starts.unsqueeze(1)]

    def pooled(self, rows: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        """Pool the looked-up rows of a batch.

        Args:
            rows: Result of `rows_of`; the ids of each bag first, then any padding.
            weights: float32 `[batch, fields, longest]`: the weight of each id, 0 for padding.

        Returns:
            Pooled rows, `[batch, bags, dim]`; also the lengths of the histories, int64 `[batch, histories]`, for layers
            that read histories id by id.
        """
        found = rows * weights.unsqueeze(3)
        if not any(self.histories):
            return (found.sum(2),)
        parts = [
            found[:, place, :width] if is_history else found[:, place].sum(1, keepdim=True)
            for place, (is_history, width) in enumerate(zip(self.histories, self.widths, strict=True))
        ]
        lengths = [(weights[:, place] != 0).sum(1) for place, is_history in enumerate(self.histories) if is_history]
        return torch.cat(parts, 1), torch.stack(lengths, 1)


class PortableMember(nn.Module):
    """Click model with `PortableLookup` in place of its tables.

    Args:
        model: Model, which is not changed.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.spec, self.features = model.spec, model.features
        self.lookup, self.layers = PortableLookup(model), copy.deepcopy(model.layers)
        for layer in self.layers.modules():
            if isinstance(layer, AlignedLinear):
                # The same layer for batches of any size.
                layer.__class__ = nn.Linear  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, dense: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """Return the logits of a batch, `[batch]` or `[batch, tasks]`; for the arguments see `PortableLookup`."""
        return self.layers(dense, *self.lookup.pooled(self.lookup.rows_of(ids), weights))


class DensePart(nn.Module):
    """Portable model without its tables, whose inputs are the looked-up rows.

    Args:
        model: Portable model.
    """

    def __init__(self, model: PortableMember | Ensemble) -> None:
        super().__init__()
        members = [_AboveTables(one, place) for place, one in enumerate(members_of(model))]
        self.model = with_members(model, members).eval()

    def forward(self, dense: Tensor, weights: Tensor, rows: list[Tensor]) -> Tensor:
        """Return the logits of a batch from the result of `PortableLookup.rows_of` of each member."""
        return self.model(dense, weights, rows)


class _AboveTables(nn.Module):
    """Member without its tables, which selects its rows from the looked-up rows of all members."""

    def __init__(self, member: PortableMember, place: int) -> None:
        super().__init__()
        self.layers, self._pooled, self._place = member.layers, member.lookup.pooled, place

    def forward(self, dense: Tensor, weights: Tensor, rows: list[Tensor]) -> Tensor:
        return self.layers(dense, *self._pooled(rows[self._place], weights))


def portable(model: Model | Ensemble) -> PortableMember | Ensemble:
    """Return a click model as a module of plain tensor operations; the model is not changed."""
    models = model.models if isinstance(model, Ensemble) else (model,)
    return with_members(model, [PortableMember(one) for one in models]).eval()


def members_of(model: Any) -> list[Any]:
    """Return the members of an ensemble; a single model is its own member."""
    return list(model.members) if isinstance(model, Ensemble) else [model]


def with_members(model: Any, members: Sequence[nn.Module]) -> Any:
    """Return a copy of an ensemble with other members; if the model is not an ensemble, the only given member."""
    if not isinstance(model, Ensemble):
        return members[0]
    found = copy.copy(model)
    found._modules = {**model._modules, "members": nn.ModuleList(members)}
    return found


@torch.no_grad()
def whole_tables(embeddings: EmbeddingTables) -> list[Tensor]:
    """Return each table as float32 `[rows, dim]` with the values that lookups return, for every kind of table."""
    bags, first_bags = (
        len(embeddings.table_of),
        [embeddings.table_of.index(table) for table in range(len(embeddings.rows))],
    )
    found = []
    for bag, rows in zip(first_bags, embeddings.rows, strict=True):
        parts = []
        for ids in torch.arange(rows, dtype=torch.int32).split(ROWS_AT_ONCE):
            count = len(ids)
            offsets = torch.zeros(bags * count + 1, dtype=torch.int32)
            offsets[bag * count : (bag + 1) * count] = torch.arange(count, dtype=torch.int32)
            offsets[(bag + 1) * count :] = count
            parts.append(embeddings(ids, offsets)[:, bag].float())
        found.append(torch.cat(parts))
    return found
