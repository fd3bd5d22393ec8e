"""Placement of tables on the tiers of a node: greedy by accesses per byte, improved by single moves.

The load of a tier is the time of its reads and writes. The largest load of the byte-addressed tiers is minimised, as in
RecShard (Sethi et al., ASPLOS 2022). A tier that is read by block gets the tables that do not fit on the others, and is
accessed through a cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.extensions.tiers.memory.demand import TableDemand
from shunter.extensions.tiers.memory.servers import Tier

USABLE = 0.8  # of a capacity: the rest is activations, buffers and the system
_MOVES = 200


@dataclass(frozen=True)
class Load:
    """Load of a table on its memory tier, for one node.

    Attributes:
        size: Bytes of the table's rows on the node.
        read: Bytes read per second.
        written: Bytes written per second.
    """

    size: float
    read: float
    written: float

    @classmethod
    def of(cls, table: TableDemand, nodes: int, samples_per_second: float, batch: int) -> "Load":
        """Return the load of a table whose rows are divided evenly over nodes."""
        read, written = table.bytes_per_sample(batch)
        return cls(table.total_bytes / nodes, read * samples_per_second / nodes, written * samples_per_second / nodes)

    def share_of(self, tier: Tier) -> float:
        """Return the fraction of time in which a memory tier is busy reading and writing this table."""
        return self.read / tier.read_bytes_per_second + self.written / tier.write_bytes_per_second


def table_capacities(tiers: Sequence[Tier], reserved: float) -> list[float]:
    """Return the bytes for tables in each tier; the share `reserved` of byte-addressed tiers is left to a row cache."""
    return [tier.capacity_bytes * USABLE * (1.0 if tier.is_block else 1 - reserved) for tier in tiers]


def place_greedily(loads: Sequence[Load], tiers: Sequence[Tier], reserved: float = 0.0) -> list[int] | None:
    """Choose a tier for each table by its accesses per byte, then move tables to lower the largest load.

    Returns:
        Index of the tier for each table; None if the tables do not fit.
    """
    left = table_capacities(tiers, reserved)
    order = sorted(range(len(loads)), key=lambda one: loads[one].share_of(tiers[0]) / loads[one].size, reverse=True)
    places = [0] * len(loads)
    for table in order:
        fitting = [tier for tier, room in enumerate(left) if loads[table].size <= room]
        if not fitting:
            return None
        places[table] = fitting[0]
        left[fitting[0]] -= loads[table].size
    return _balanced(loads, tiers, places, left)


def tier_loads(loads: Sequence[Load], tiers: Sequence[Tier], places: Sequence[int]) -> list[float]:
    """Return the fraction of time in which each tier is busy; 0 for a tier that is read in blocks."""
    found = [0.0] * len(tiers)
    for load, place in zip(loads, places, strict=True):
        if not tiers[place].is_block:
            found[place] += load.share_of(tiers[place])
    return found


def _balanced(loads: Sequence[Load], tiers: Sequence[Tier], places: list[int], left: list[float]) -> list[int]:
    """Move or swap tables of the tier with the largest load, one at a time, while that lowers the load."""
    for _ in range(_MOVES):
        found = tier_loads(loads, tiers, places)
        worst = int(np.argmax(found))
        best: tuple[float, list[tuple[int, int]]] = (found[worst], [])
        for moves in _candidates(loads, tiers, places, left, worst):
            changed = list(found)
            for table, to in moves:
                changed[places[table]] -= loads[table].share_of(tiers[places[table]])
                changed[to] += loads[table].share_of(tiers[to])
            if max(changed) < best[0] * (1 - 1e-9):
                best = max(changed), moves
        if not best[1]:
            break
        for table, to in best[1]:
            left[places[table]] += loads[table].size
            left[to] -= loads[table].size
            places[table] = to
    return places


def _candidates(
    loads: Sequence[Load], tiers: Sequence[Tier], places: Sequence[int], left: Sequence[float], worst: int
) -> list[list[tuple[int, int]]]:
    fast = [tier for tier, kind in enumerate(tiers) if not kind.is_block and tier != worst]
    here = [table for table, place in enumerate(places) if place == worst]
    found = [[(table, to)] for table in here for to in fast if loads[table].size <= left[to]]
    for table in here:
        for other, to in enumerate(places):
            if to in fast:
                grows = loads[table].size - loads[other].size
                if grows <= left[to] and -grows <= left[worst]:
                    found.append([(table, to), (other, worst)])
    return found
