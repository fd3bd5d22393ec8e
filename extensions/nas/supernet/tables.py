"""Tables of a super-net, for every width and every number of rows that they may have.

All widths share one table of the largest width, truncated and padded with zeros, like the channels of FBNetV2 (Wan et
al., CVPR 2020, arXiv 2004.05565). A narrow table thus learns from the same samples as a wide one, and the gradient of a
truncated row affects its first columns only. Candidate numbers of rows share nothing: each has its own table, indexed
modulo its rows, because ids that collide in one table do not collide in another. This costs little more memory than the
largest table.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shunter.extensions.nas.supernet.masks import Masks
from shunter.extensions.nas.supernet.space import dim_choice, share_choice
from shunter.models.embeddings.pooled import build_embeddings
from shunter.models.embeddings.request import Kernel
from shunter.models.spec import Features, rows_kept


class _Lookup(NamedTuple):
    """Lookup of one bag in one candidate table: index of the candidate `number`, with `rows` rows, of a `table`."""

    table: int
    number: int
    bag: int
    rows: int


class SuperTables(nn.Module):
    """Pooled embeddings of all candidates from one lookup, mixed by the masks.

    The tables are updated in the backward pass, by the row-wise Adagrad of `shunter.models.embeddings.role`, because
    few optimisers support sparse gradients.

    Args:
        features: Input features.
        dims: Widths that each table may have.
        shares: Candidate shares of ids with a row of their own, of each table.
        dim: Width of the output vectors, at least that of the widest table.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device of the tables; it cannot be changed.
        kernel: Library of the lookups.
    """

    columns: Tensor
    table_of: Tensor
    lookup_bags: Tensor
    lookup_tables: Tensor
    lookup_numbers: Tensor

    def __init__(
        self,
        features: Features,
        dims: Sequence[Sequence[int]],
        shares: Sequence[Sequence[float]],
        *,
        dim: int,
        learning_rate: float,
        device: str | torch.device = "cpu",
        kernel: Kernel = "auto",
    ) -> None:
        super().__init__()
        self.dim = dim
        ids, of_bag = features.table_rows, features.table_of
        self.lookups = [
            _Lookup(table, number, bag, rows_kept(ids[table], share))
            for table, of in enumerate(shares)
            for number, share in enumerate(of)
            for bag in range(len(of_bag))
            if of_bag[bag] == table
        ]
        tables = list(dict.fromkeys((lookup.table, lookup.number, lookup.rows) for lookup in self.lookups))
        self.embeddings = build_embeddings(
            [rows for *_, rows in tables],
            dim,
            learning_rate=learning_rate,
            device=torch.device(device),
            kernel=kernel,
            table_of=[tables.index((lookup.table, lookup.number, lookup.rows)) for lookup in self.lookups],
        )
        self._bags, self._shares_rows = len(of_bag), any(lookup.rows < ids[lookup.table] for lookup in self.lookups)
        columns = torch.zeros(len(dims), max(map(len, dims)), dim)
        for table, widths in enumerate(dims):
            for number, width in enumerate(widths):
                columns[table, number, :width] = 1.0
        indices = {
            "columns": columns,
            "table_of": of_bag,
            "lookup_bags": [lookup.bag for lookup in self.lookups],
            "lookup_tables": [lookup.table for lookup in self.lookups],
            "lookup_numbers": [lookup.number for lookup in self.lookups],
        }
        for name, values in indices.items():
            self.register_buffer(name, torch.as_tensor(values).to(device), persistent=False)

    def forward(self, values: Tensor, offsets: Tensor, masks: Masks) -> Tensor:
        """Look up one batch, as `shunter.models.embeddings.role.EmbeddingTables` does, and mix the candidates.

        Returns:
            `[batch, bags, dim]`; missing columns of a width are zero.
        """
        return self.mixed(self.embeddings(*self.expanded(values, offsets)), masks)

    def expanded(self, values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids once for each candidate number of rows, modulo that number; unchanged for one candidate.

        The host reads the offsets, which synchronises a GPU once a step.
        """
        if not self._shares_rows and len(self.lookups) == self._bags:
            return values, offsets
        batch = (len(offsets) - 1) // self._bags
        bounds = offsets[::batch].tolist()
        ids = torch.cat([values[bounds[lookup.bag] : bounds[lookup.bag + 1]] % lookup.rows for lookup in self.lookups])
        lengths = offsets.diff().view(self._bags, batch)[self.lookup_bags].flatten()
        return ids, nn.functional.pad(lengths.cumsum(0), (1, 0)).to(offsets.dtype)

    def mixed(self, pooled: Tensor, masks: Masks) -> Tensor:
        """Map `[batch, lookups, dim]` of all candidates to `[batch, bags, dim]`."""
        if len(self.lookups) > self._bags:
            weights = masks.values[:, masks.places[share_choice(0)] + self.lookup_tables, self.lookup_numbers]
            mixed = pooled.new_zeros(len(pooled), self._bags, self.dim)
            pooled = mixed.index_add(1, self.lookup_bags, pooled * weights.unsqueeze(2))
        widest = self.columns.shape[1]
        first = masks.places[dim_choice(0)]
        dims = masks.values[:, first : first + len(self.columns), :widest]
        return pooled * torch.einsum("btk,tkc->btc", dims, self.columns)[:, self.table_of]
