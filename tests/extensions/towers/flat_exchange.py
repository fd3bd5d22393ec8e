"""Lookup by one exchange among all processes, without towers: the oracle of the transform."""

from torch import Tensor

from shunter.extensions.towers.sptt import TowerEmbeddings, _exchange_rows, _order, _reordered  # pyright: ignore[reportPrivateUsage]


def lookup_flat(tables: TowerEmbeddings, values: Tensor, offsets: Tensor) -> Tensor:
    """Look up all fields, `[batch, fields, dim]`."""
    owned = tables.layout.owned
    pooled = tables._lookup_own(values, offsets)  # pyright: ignore[reportPrivateUsage]
    received = _exchange_rows(pooled, tables.hosts.everyone, len(pooled) // len(owned), [len(own) for own in owned])
    return _reordered(received, _order([field for own in owned for field in own]))
