"""The tables of a super-net: of every width and every number of rows that they may have.

Widths share one table of the largest, truncated and padded with zeros, as the channels of FBNetV2 do (Wan et al., CVPR
2020, arXiv 2004.05565): a narrow table learns from every sample that a wide one learns from, and the gradient of a
truncated row touches its first columns only. Numbers of rows do not share: each is a table of its own, looked up modulo
its rows, for ids that meet in a row of one are apart in another. That costs little memory beyond the largest.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.embeddings import Kernel, build_embeddings
from models.spec import Features, rows_kept
from models.supernet.masks import Masks


def dim_choice(table: int) -> str:
    """Name of the choice of a table's width."""
    return f"dim_{table}"


def share_choice(table: int) -> str:
    """Name of the choice of the share of its ids that have a row of their own."""
    return f"share_{table}"


class SuperTables(nn.Module):
    """The pooled embeddings of every candidate in one lookup, and their mixture.

    The tables update themselves in the backward pass, by the row-wise Adagrad of `models.embeddings`: a super-net has
    no sparse gradients, which few optimisers take.

    Args:
        features: the input.
        dims: widths that each table may have.
        shares: shares of its ids that may have a row of their own, of each table.
        dim: width of the vectors that come out, at least the widest table.
        learning_rate: of the row-wise Adagrad.
        device: where the tables lie, for good.
        kernel: of the embeddings.

    Attributes:
        is_frozen: lets a backward pass leave the tables as they are.
    """

    columns: Tensor
    table_of: Tensor

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
        self.shares = tuple(tuple(one) for one in shares)
        ids = features.table_rows
        rows = [[rows_kept(count, share) for share in one] for count, one in zip(ids, shares, strict=True)]
        bags_of: list[list[int]] = [[] for _ in rows]
        for bag, table in enumerate(features.table_of):
            bags_of[table].append(bag)
        # One lookup for each table, each number of its rows and each bag that reads it, in this order.
        self.lookups = [(bag, kept) for table, counts in enumerate(rows) for kept in counts for bag in bags_of[table]]
        flat = [kept for counts in rows for kept in counts]
        starts = [sum(map(len, rows[:table])) for table in range(len(rows))]
        table_of = [
            starts[table] + number
            for table, counts in enumerate(rows)
            for number in range(len(counts))
            for _ in bags_of[table]
        ]
        self.embeddings = build_embeddings(
            flat, dim, learning_rate=learning_rate, device=torch.device(device), kernel=kernel, table_of=table_of
        )
        widest = max(map(len, dims))
        columns = torch.zeros(len(dims), widest, dim, device=device)
        for table, widths in enumerate(dims):
            for number, width in enumerate(widths):
                columns[table, number, :width] = 1.0
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("table_of", torch.tensor(features.table_of, device=device), persistent=False)
        self._bags = len(features.table_of)

    is_frozen: bool = False

    def forward(self, values: Tensor, offsets: Tensor, masks: Masks) -> Tensor:
        """Look up one batch, as `models.embeddings.PooledEmbeddings` does, and mix the candidates.

        Returns:
            `[batch, bags, dim]`; columns that a width lacks are zero.
        """
        pooled = self.embeddings(*self.expanded(values, offsets))
        return self.mixed(pooled.detach() if self.is_frozen else pooled, masks)

    def expanded(self, values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """The ids of each bag once for each number of rows, modulo it; ids and offsets as they came in where none is.

        The host reads where each bag begins, so a GPU waits for it once a step.
        """
        if all(len(one) == 1 and one[0] == 1 for one in self.shares):
            return values, offsets
        batch = (len(offsets) - 1) // self._bags
        bounds = offsets[::batch].tolist()
        ids = torch.cat([values[bounds[bag] : bounds[bag + 1]] % rows for bag, rows in self.lookups])
        lengths = offsets.diff().view(self._bags, batch)[[bag for bag, _ in self.lookups]].flatten()
        return ids, nn.functional.pad(lengths.cumsum(0), (1, 0)).to(offsets.dtype)

    def mixed(self, pooled: Tensor, masks: Masks) -> Tensor:
        """`[batch, lookups, dim]` of all candidates to `[batch, bags, dim]`."""
        if len(self.lookups) > self._bags:
            weights = torch.cat([self._share_weights(table, masks) for table in range(len(self.shares))], dim=1)
            bag_of = torch.tensor([bag for bag, _ in self.lookups], device=pooled.device)
            mixed = pooled.new_zeros(len(pooled), self._bags, self.dim)
            pooled = mixed.index_add(1, bag_of, pooled * weights.unsqueeze(2))
        widest = self.columns.shape[1]
        first = masks.places[dim_choice(0)]
        dims = masks.values[:, first : first + len(self.columns), :widest]
        return pooled * torch.einsum("btk,tkc->btc", dims, self.columns)[:, self.table_of]

    def _share_weights(self, table: int, masks: Masks) -> Tensor:
        """`[batch, lookups of a table]`: the mask of the number of rows that each reads."""
        bags = int((self.table_of == table).sum())
        return masks[share_choice(table)].repeat_interleave(bags, dim=1)
