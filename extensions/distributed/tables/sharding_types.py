"""Types of division of a table over processes or devices, as used by training and planning.

    data_parallel        a copy in every process; its gradient is averaged
    table_wise           one process holds the whole table
    row_wise             every process holds a block of rows
    column_wise          processes hold blocks of columns
    table_row_wise       table_wise over nodes, row_wise within the node
    table_column_wise    column_wise, all blocks of a table within one node
    grid_shard           column_wise over nodes, row_wise within the node

Row-wise Adagrad stores one sum per row. If columns are divided, each block of columns has its own sum and thus its own
step size, so such a table is not trained exactly as in one process. The other four types are exact.
"""

from typing import Literal, NamedTuple, get_args

ShardingType = Literal[
    "data_parallel",
    "table_wise",
    "row_wise",
    "column_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
]
SHARDING_TYPES: tuple[ShardingType, ...] = get_args(ShardingType)
BY_COLUMN: tuple[ShardingType, ...] = ("column_wise", "table_column_wise", "grid_shard")
BY_ROW: tuple[ShardingType, ...] = ("row_wise", "table_row_wise", "grid_shard")
OF_HOSTS: tuple[ShardingType, ...] = ("table_row_wise", "table_column_wise", "grid_shard")
# Types with which a table is trained exactly as in one process.
EXACT_SHARDING_TYPES: tuple[ShardingType, ...] = tuple(kind for kind in SHARDING_TYPES if kind not in BY_COLUMN)
CommunicationPrecision = Literal["fp32", "fp16", "bf16"]


class Choice(NamedTuple):
    """Placement of a table.

    Attributes:
        kind: How the table is divided.
        devices: Processes or devices that hold a part, in the order of the parts; empty if all do.
        replicated_rows: Number of first rows that every device has a copy of; the other rows are exchanged one by one.
    """

    kind: ShardingType
    devices: tuple[int, ...] = ()
    replicated_rows: int = 0


def can_divide_rows(rows: int, parts: int) -> bool:
    """Return True if each of the equal parts gets at least one row."""
    block = -(-rows // parts)
    return (parts - 1) * block < rows
