"""Fewest nodes of a server type that train a model at the requested rate, with their costs: simulated.

The tables are placed on the tiers of a node greedily by accesses per byte, improved by single moves. The load of a tier
is the time of its reads and writes. The largest load of the byte-addressed tiers is minimised, as in RecShard (Sethi et
al., ASPLOS 2022). A tier that is read by block gets the tables that do not fit on the others, and is accessed through a
cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shunter.extensions.tiers.memory.demand import TableDemand
from shunter.extensions.tiers.memory.hits import predict_hits
from shunter.extensions.tiers.memory.servers import Server, Tier

USABLE = 0.8  # of a capacity: the rest is activations, buffers and the system
MOVES = 200  # most single moves of a table
MOST_NODES = 1_024
RESERVES = (0.0, 0.1, 0.25, 0.5, 0.75)  # shares of the fast tiers that are tried as a cache of the slow one
BUSY = 0.7  # of what a tier reaches at most, beyond which it is not planned
SECONDS_A_DAY = 86_400
JOULES_A_KWH = 3.6e6


@dataclass(frozen=True)
class TrainingDemand:
    """Training demand for which nodes are planned.

    Attributes:
        tables: The tables.
        flops_per_sample: FLOPs of the layers per sample, forward and backward.
        batch: Samples per step, summed over all nodes.
        samples_per_second: Rate that must be reached.
        miss_factor: Multiple of the predicted cache misses, for a sensitivity analysis.
    """

    tables: tuple[TableDemand, ...]
    flops_per_sample: float
    batch: int
    samples_per_second: float
    miss_factor: float = 1.0


@dataclass(frozen=True)
class Plan:
    """Feasible plan of nodes.

    Attributes:
        nodes: Number of nodes.
        places: Tier of each table.
        cache_bytes: Bytes of each node's cache for rows of the slow tier.
        miss_rate: Share of a step's distinct rows of tables on the slow tier that are not in the cache.
        step_seconds: Time of a step.
        samples_per_second: Training rate of all nodes together.
        kwh: Energy of a billion samples.
        cost: Cost of a billion samples in US dollars.
        limited_by: Resource that limits the step.
    """

    nodes: int
    places: Mapping[str, str]
    cache_bytes: float
    miss_rate: float
    step_seconds: float
    samples_per_second: float
    kwh: float
    cost: float
    limited_by: str

    @property
    def hours(self) -> float:
        """Hours to train on a billion samples."""
        return 1e9 / self.samples_per_second / 3600


def fewest_nodes(server: Server, ask: TrainingDemand) -> Plan | None:
    """Return the fastest plan with the fewest nodes; None if even `MOST_NODES` do not suffice."""
    low, high = 0, 1
    while high <= MOST_NODES and plan_for(server, ask, high) is None:
        low, high = high, 2 * high
    if high > MOST_NODES:
        return None
    while high - low > 1:  # more nodes never hold less
        middle = (low + high) // 2
        low, high = (low, middle) if plan_for(server, ask, middle) else (middle, high)
    return plan_for(server, ask, high)


def plan_for(server: Server, ask: TrainingDemand, nodes: int) -> Plan | None:
    """Return the fastest plan for this number of nodes; None if no plan reaches the rate."""
    has_block = any(tier.is_block for tier in server.tiers.values())
    found = [_plan(server, ask, nodes, reserved) for reserved in (RESERVES if has_block else RESERVES[:1])]
    holding = [plan for plan in found if plan is not None and plan.samples_per_second >= ask.samples_per_second]
    return min(holding, key=lambda plan: plan.step_seconds, default=None)


def _plan(server: Server, ask: TrainingDemand, nodes: int, reserved: float) -> Plan | None:
    names, tiers = list(server.tiers), list(server.tiers.values())
    loads = [Load.of(table, nodes, ask.samples_per_second, ask.batch) for table in ask.tables]
    places = place_greedily(loads, tiers, reserved)
    if places is None:
        return None
    taken = np.zeros(len(tiers))
    np.add.at(taken, places, [load.size for load in loads])
    left = np.array(
        [0.0 if tier.is_block else room for room, tier in zip(table_capacities(tiers, 0.0), tiers, strict=True)]
    )
    left = np.maximum(left - taken, 0.0)
    on_slow = [tiers[place].is_block for place in places]
    # Rows from the slow tier are then in a cache, which uses bandwidth of its tiers.
    busy = tier_loads(loads, tiers, places)
    cached = [load for load, is_slow in zip(loads, on_slow, strict=True) if is_slow]
    for place, tier in enumerate(tiers):
        if left[place]:
            busy[place] += sum(load.share_of(tier) for load in cached) * float(left[place] / left.sum())
    seconds = {
        "layers": ask.flops_per_sample * ask.batch / nodes / server.flops_per_second,
        # The loads are parts of a second at the requested rate; a step at that rate lasts batch / rate.
        "memory": max(busy) / BUSY * ask.batch / ask.samples_per_second,
    }
    miss_rate = 0.0
    slow = [table for table, is_slow in zip(ask.tables, on_slow, strict=True) if is_slow]
    if slow:
        fetch = _fetch(server, ask, slow, nodes, float(left.sum()))
        if fetch is None:
            return None
        seconds["slow tier"], miss_rate = fetch
    limited_by, step = max(seconds.items(), key=lambda one: one[1])
    rate = ask.batch / step
    hours = 1e9 / rate / 3600
    return Plan(
        nodes=nodes,
        places={table.name: names[place] for table, place in zip(ask.tables, places, strict=True)},
        cache_bytes=float(left.sum()),
        miss_rate=miss_rate,
        step_seconds=step,
        samples_per_second=rate,
        kwh=nodes * server.watts * hours * 3600 / JOULES_A_KWH,
        cost=nodes * server.price_per_hour * hours,
        limited_by=limited_by,
    )


def _fetch(
    server: Server, ask: TrainingDemand, slow: Sequence[TableDemand], nodes: int, cache_bytes: float
) -> tuple[float, float] | None:
    """Return the seconds to load the rows of a step from the slow tier, and the miss rate; None if it wears out.

    Each loaded row evicts a trained row, so that equal amounts are written and read, block by block.
    """
    tier = next(tier for tier in server.tiers.values() if tier.reads_per_second is not None)
    hits = predict_hits(slow, ask.batch, cache_bytes * nodes)
    misses = np.minimum(hits.misses * ask.miss_factor, hits.requests)
    blocks = sum(
        miss * -(-table.row_bytes // tier.granule_bytes) / nodes for table, miss in zip(slow, misses, strict=True)
    )
    moved = blocks * tier.granule_bytes
    assert tier.reads_per_second is not None, "it is read by block"
    seconds = (
        tier.latency_seconds
        + max(
            2 * blocks / tier.reads_per_second, moved / tier.read_bytes_per_second + moved / tier.write_bytes_per_second
        )
        / BUSY
    )
    written_a_day = moved * ask.samples_per_second / ask.batch * SECONDS_A_DAY
    if tier.writes_per_day is not None and written_a_day > tier.writes_per_day * tier.capacity_bytes * USABLE:
        return None
    return float(seconds), float(misses.sum() / max(hits.requests.sum(), 1e-12))


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
    for _ in range(MOVES):
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
