"""Division of a model's tables into groups that are looked up together: by TorchRec, or by row exchange per width."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from torch import device

from shunter.extensions.distributed.tables.exchanged import ExchangedTable
from shunter.extensions.distributed.tables.selected_columns import ColumnOrder
from shunter.models.spec import TableShape


@dataclass(frozen=True, kw_only=True)
class TableGroup:
    """Tables that are looked up together.

    Attributes:
        tables: Numbers of the tables in the model.
        bags: Bags of a sample that are looked up in these tables.
        table_of: Table of each of these bags, as an index into `tables`.
    """

    tables: tuple[int, ...]
    bags: tuple[int, ...]
    table_of: tuple[int, ...]

    @classmethod
    def of(cls, tables: Sequence[int], table_of: Sequence[int]) -> Self:
        """Create a group of some tables; `table_of` is the table of each bag of a sample, among all tables."""
        place = {table: number for number, table in enumerate(tables)}
        bags = tuple(bag for bag, table in enumerate(table_of) if table in place)
        return cls(tables=tuple(tables), bags=bags, table_of=tuple(place[table_of[bag]] for bag in bags))


@dataclass(frozen=True, kw_only=True)
class Division:
    """Division of a model's tables by how they are looked up; every table is in one group.

    Attributes:
        pooled: Tables whose pooled rows are sent between processes; None if there are none.
        exchanged: Tables whose single rows are sent between processes: for each width the tables and their group.
        widths: Width of the vector of each bag of a sample.
    """

    pooled: TableGroup | None
    exchanged: tuple[tuple[int, tuple[ExchangedTable, ...], TableGroup], ...]
    widths: tuple[int, ...]

    @classmethod
    def of(cls, shapes: Sequence[TableShape], table_of: Sequence[int], exchanged: Sequence[ExchangedTable]) -> Self:
        """Divide the tables of a model into groups.

        Args:
            shapes: Shapes of all tables.
            table_of: Table of each bag of a sample.
            exchanged: Tables whose single rows are sent; the others are pooled.
        """
        pooled = sorted(set(range(len(shapes))) - {one.number for one in exchanged})
        by_width: dict[int, list[ExchangedTable]] = {}
        for one in sorted(exchanged, key=lambda one: one.number):
            by_width.setdefault(shapes[one.number].width, []).append(one)
        return cls(
            pooled=TableGroup.of(pooled, table_of) if pooled else None,
            exchanged=tuple(
                (width, tuple(tables), TableGroup.of([one.number for one in tables], table_of))
                for width, tables in by_width.items()
            ),
            widths=tuple(shapes[table].width for table in table_of),
        )

    @property
    def groups(self) -> list[TableGroup]:
        """All groups, in the order of their vectors in the output of a lookup."""
        return [*([self.pooled] if self.pooled else []), *(group for _, _, group in self.exchanged)]

    def order(self, where: device) -> ColumnOrder | None:
        """Return the column order that sorts the output of all groups by bag; None if it is sorted already."""
        there = [bag for group in self.groups for bag in group.bags]
        starts = dict(zip(there, accumulate((self.widths[bag] for bag in there), initial=0), strict=False))
        return ColumnOrder.of([(starts[bag], width) for bag, width in enumerate(self.widths)], where)
